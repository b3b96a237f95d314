// The sources of all daemons: add, change, disable and remove them, with what `lookout check` says before it is saved.
import { at, send } from "../api.js";
import { load } from "../changes.js";
import * as format from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { daemons, keyOf, loaded, mayChange, refresh, sources } from "../model.js";
import { announce, Dialog, Empty, Notice, State } from "../parts.js";
import { setQuery } from "../router.js";
import { SourceForm } from "../source_form.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";

const pathOf = (row) => `/api/sources/${at(row.daemon, row.id)}`;

export default function Sources({ route }) {
  const rows = [...useStore(sources).values()].sort((a, b) => a.daemon.localeCompare(b.daemon) || a.id.localeCompare(b.id, undefined, { numeric: true }));
  const all = [...useStore(daemons).values()];
  const open = all.filter((row) => row.http);
  const closed = all.filter((row) => !row.http).map((row) => row.name);
  const passing = open.filter((row) => !row.persists && row.state === "up").map((row) => row.name);
  const [failure, setFailure] = useState(null);
  const [removing, setRemoving] = useState(null);
  const may = mayChange();
  const wanted = route.query.get("change");
  const kept = useRef(null); // what is typed is not lost with a row that goes
  kept.current = rows.find((row) => keyOf(row.daemon, row.id) === wanted) ?? kept.current;
  const change = kept.current && keyOf(kept.current.daemon, kept.current.id) === wanted ? kept.current : null;
  const act = async (words, task) => {
    setFailure(null);
    try {
      await task();
      await refresh();
      announce(words);
    } catch (error) {
      setFailure(error.message);
    }
  };
  const done = (words) => {
    setQuery({});
    announce(words);
    refresh().catch(() => {});
  };
  return html`
    <div class="bar"><h1>${t.sources.title}</h1>
      ${may && open.length > 0 && html`<button class="primary" onClick=${() => setQuery({ add: 1 })}>${t.sources.add}</button>`}</div>
    ${!may && html`<${Notice}>${t.sources.readOnly}<//>`}
    ${may && closed.length > 0 && html`<${Notice}>${t.sources.noHttp(closed.join(", "))}<//>`}
    ${may && passing.length > 0 && html`<${Notice}>${t.sources.forgets(passing.join(", "))}<//>`}
    ${failure && html`<${Notice} kind="error">${failure}<//>`}
    ${loaded.value && !rows.length ? html`<${Empty} title=${all.some((row) => row.state !== "up") ? t.wall.unknown : t.wall.none} />` : html`<${Table} rows=${rows} may=${may} all=${all} act=${act} setRemoving=${setRemoving} />`}
    ${route.query.get("add") && may && html`<${SourceForm} daemons=${open.map((row) => row.name)} onClose=${() => setQuery({})} onDone=${done} />`}
    ${change && html`<${ChangeForm} row=${change} onClose=${() => setQuery({})} onDone=${done} />`}
    ${removing && html`<${Dialog} title=${t.sources.removeTitle(removing.id)} onClose=${() => setRemoving(null)}>
      <p>${t.sources.removeWords}</p>
      <p class="dialog-actions"><button onClick=${() => setRemoving(null)}>${t.cancel}</button>
        <button class="danger" onClick=${() => {
          setRemoving(null);
          act(t.sources.removed(removing.id), () => send("DELETE", pathOf(removing)));
        }}>${t.sources.remove}</button></p><//>`}`;
}

function Table({ rows, may, all, act, setRemoving }) {
  const able = new Set(all.filter((row) => row.http && row.state === "up").map((row) => row.name));
  const toggle = (row) => {
    const enabled = row.enabled === false;
    act((enabled ? t.sources.enabled : t.sources.disabled)(row.id), () => send("PATCH", pathOf(row), { enabled }));
  };
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${t.sources.title}><table class="sources">
    <thead><tr><th>${t.sources.name}</th>${all.length > 1 && html`<th>${t.sources.daemon}</th>`}<th>${t.sources.state}</th><th class="minor">${t.sources.kind}</th>
      <th class="minor">${t.sources.size}</th><th class="minor">${t.sources.rate}</th><th>${t.sources.actions}</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row.daemon, row.id)}>
      <th scope="row"><a href=${`/camera/${at(row.daemon, row.id)}`}>${row.id}</a></th>
      ${all.length > 1 && html`<td>${row.daemon}</td>`}
      <td><${State} state=${row.enabled === false ? "disabled" : row.state} />${row.reason && html`<div class="reason">${t.inWords(row.reason)}</div>`}</td>
      <td class="minor">${t.sources.kinds[row.type] ?? row.type}${row.codec && row.codec !== "drawn" && html` <small>${row.codec}</small>`}</td>
      <td class="figure minor">${row.width ? `${row.width} × ${row.height}` : format.DASH}</td>
      <td class="figure minor">${format.fps(row.analysed_fps)}</td>
      <td class="actions"><a class="button" href=${`/rules/${at(row.daemon, row.id)}`}>${t.sources.rules}<span class="spoken"> ${row.id}</span></a>
        ${may && able.has(row.daemon) && html`
          <button onClick=${() => setQuery({ change: keyOf(row.daemon, row.id) })}>${t.sources.change}<span class="spoken"> ${row.id}</span></button>
          <button onClick=${() => toggle(row)}>${row.enabled === false ? t.sources.enable : t.sources.disable}<span class="spoken"> ${row.id}</span></button>
          <button class="danger" onClick=${() => setRemoving(row)}>${t.sources.remove}<span class="spoken"> ${row.id}</span></button>`}</td>
    </tr>`)}</tbody></table></div>`;
}

/** The form needs the configuration, which is not in the list. */
function ChangeForm({ row, onClose, onDone }) {
  const [opened, setOpened] = useState(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    load(row.daemon, row.id).then(setOpened, (error) => setFailure(error.message));
  }, [row.daemon, row.id]);
  if (failure) return html`<${Dialog} title=${t.sources.form.changeTitle(row.id)} onClose=${onClose}><${Notice} kind="error">${failure}<//><//>`;
  return opened && html`<${SourceForm} daemons=${[row.daemon]} opened=${opened} onClose=${onClose} onDone=${onDone} />`;
}
