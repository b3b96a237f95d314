// Named walls of this browser, and links to them.
import { html, useState } from "../html.js";
import { Dialog, Field } from "../parts.js";
import { t } from "../texts.js";
import { linkOf, queryOf, useViews } from "./address.js";

export function Views({ wall, onClose }) {
  const { views, keep, forget } = useViews();
  const [name, setName] = useState("");
  const [told, setTold] = useState("");
  const copy = () => {
    const link = new URL(linkOf(queryOf(wall)), location.href).href;
    const done = navigator.clipboard?.writeText(link).then(() => setTold(t.events.copied), () => setTold(t.events.copyFailed));
    if (!done) setTold(t.events.copyFailed);
  };
  const save = (event) => {
    event.preventDefault();
    keep(name.trim(), wall);
    setTold(t.views.kept(name.trim()));
    setName("");
  };
  return html`<${Dialog} title=${t.views.title} onClose=${onClose}>
    <form class="stack" onSubmit=${save}>
      <${Field} label=${t.views.name} hint=${t.views.hint} id="view-name"><input id="view-name" maxlength="40" required autocomplete="off"
        aria-describedby="view-name-hint" value=${name} onInput=${(event) => setName(event.target.value)} /><//>
      <p class="dialog-actions"><span role="status">${told}</span><button type="button" onClick=${copy}>${t.views.copy}</button>
        <button class="primary" disabled=${!name.trim()}>${t.views.keep}</button></p>
    </form>
    ${views.length > 0 && html`<ul class="views">${views.map((view) => html`<li key=${view.name}>
      <a href=${linkOf(view.query)} onClick=${onClose}>${view.name}</a>
      <button class="plain" onClick=${() => forget(view.name)}>${t.views.forget}<span class="spoken"> ${view.name}</span></button></li>`)}</ul>`}
  <//>`;
}
