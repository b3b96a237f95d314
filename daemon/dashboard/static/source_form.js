// The form of one source. Keys without a field of their own stand as JSON, so that nothing is out of reach.
import { at, send } from "./api.js";
import * as changes from "./changes.js";
import { html, useEffect, useState } from "./html.js";
import { daemons as known } from "./model.js";
import { Dialog, Field, Notice } from "./parts.js";
import { guard } from "./router.js";
import { useStore } from "./store.js";
import { t } from "./texts.js";

const f = t.sources.form;
// Fields of each kind: [key, label, hint, how].
const FIELDS = {
  av: [
    ["url", f.url, f.urlHint, "text"],
    ["user", f.user, null, "text"],
    ["password", f.password, f.secretHint, "password"],
    ["transport", f.transport, null, ["auto", "tcp", "udp"]],
    ["loop", f.loop, null, "flag"],
  ],
  camera: [
    ["device", f.device, f.deviceHint, "text"],
    ["width", f.width, null, "number"],
    ["height", f.height, null, "number"],
    ["fps", f.fps, null, "number"],
  ],
  synthetic: [
    ["width", f.width, null, "number"],
    ["height", f.height, null, "number"],
    ["fps", f.fps, null, "number"],
    ["objects", f.objects, null, "number"],
  ],
};
const COMMON = [
  ["model", f.models, f.modelsHint, "models"], // shown where the daemon has several
  ["max_fps", f.maxFps, f.maxFpsHint, "number"],
  ["labels", f.labels, f.labelsHint, "list"],
  ["confidence", f.confidence, null, "number"],
  ["tracking", f.tracking, null, "tracking"],
];
const fieldsOf = (type) => [...FIELDS[type], ...COMMON];

const toText = (value, how) => {
  if (value === null || value === undefined) return how === "flag" ? false : how === "tracking" ? "default" : "";
  if (how === "list") return value.join(", ");
  if (how === "models") return [value].flat();
  if (how === "flag") return value;
  return String(value);
};

function fromText(text, how, label) {
  if (how === "flag") return text;
  if (how === "tracking") return { default: null, true: true, false: false }[text];
  if (text === "") return null;
  if (how === "models") return text.length > 1 ? text : (text[0] ?? null);
  if (how === "list") return text.split(",").map((part) => part.trim()).filter(Boolean);
  if (how !== "number") return text;
  const value = Number(text.replace(",", "."));
  if (!Number.isFinite(value)) throw new Error(f.badNumber(label));
  return value;
}

/** Split a configuration into the form's values, and the other keys. */
function split(config) {
  const values = { id: config.id ?? "", type: config.type ?? "av" };
  const others = {};
  const known = new Map(fieldsOf(values.type).map(([key, , , how]) => [key, how]));
  for (const [key, value] of Object.entries(config)) {
    const plain = known.has(key) && !(key === "tracking" && value !== null && typeof value === "object");
    if (plain) values[key] = toText(value, known.get(key));
    else if (!["id", "type", "rules", "enabled"].includes(key) && !isDefault(value)) others[key] = value;
  }
  return { values, others: Object.keys(others).length ? JSON.stringify(others, null, 2) : "" };
}

const isDefault = (value) => value === null || (typeof value === "object" && !Object.keys(value).length);

// A list of one model is that model.
const isSame = (one, other) => JSON.stringify([one].flat()) === JSON.stringify([other].flat());

function assemble(values, others, old) {
  const found = {};
  for (const [key, label, , how] of fieldsOf(values.type)) {
    if (values[key] === undefined && !old) continue;
    const value = fromText(values[key] ?? toText(null, how), how, label);
    const before = old?.[key] ?? null;
    // Only what differs is sent: a key that is left out keeps its value, or takes its default.
    if (isSame(value, before) || (value === null && !old) || (value === false && before === null)) continue;
    if (key === "device" && /^\d+$/.test(value)) found[key] = Number(value);
    else found[key] = value;
  }
  const head = old ? {} : { id: values.id.trim(), type: values.type };
  return { ...head, ...found, ...moreOf(others, old) };
}

/** Of the other keys those that differ; one that is taken out gets its default. */
function moreOf(others, old) {
  let more = {};
  try {
    if (others.trim()) more = JSON.parse(others);
  } catch (error) {
    throw new Error(f.badJson(error.message));
  }
  if (!old) return more;
  const before = split(old).others;
  const gone = Object.keys(before ? JSON.parse(before) : {}).filter((key) => !(key in more));
  const changed = Object.entries(more).filter(([key, value]) => !changes.same(value, old[key]));
  return { ...Object.fromEntries(changed), ...Object.fromEntries(gone.map((key) => [key, null])) };
}

/** @param {Base} opened the source that is changed; null for a new one */
export function SourceForm({ daemons, opened = null, onClose, onDone }) {
  const [base, setBase] = useState(opened); // what the form shows the changes of
  const config = base?.config ?? null;
  const [{ values, others }, setState] = useState(() => split(config ?? {}));
  const [conflict, setConflict] = useState(null);
  const [daemon, setDaemon] = useState(daemons[0]);
  const models = useStore(known).get(daemon)?.models ?? [];
  const [answer, setAnswer] = useState(null); // of the check
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const set = (key, value) => {
    setState((before) => ({ ...before, values: { ...before.values, [key]: value } }));
    setAnswer(null);
  };
  const path = config ? `/api/sources/${at(daemon, config.id)}` : `/api/sources/${at(daemon)}`;
  const isDirty = !changes.same({ values, others }, split(config ?? {}));
  useEffect(() => (isDirty ? guard(() => confirm(f.leave)) : undefined), [isDirty]);
  const close = () => (!isDirty || confirm(f.leave)) && onClose();
  /** @param from what others are known to have made of it */
  const save = async (content, from) => {
    if (config) await changes.change(daemon, config.id, from, content);
    else await send("POST", path, content);
    onDone((config ? t.sources.changed : t.sources.added)(config?.id ?? content.id));
  };
  const submit = async (dry, from = base) => {
    setBusy(true);
    setFailure(null);
    setConflict(null);
    try {
      const content = assemble(values, others, config);
      if (dry) setAnswer(await send(config ? "PATCH" : "POST", `${path}?dry_run=true`, content));
      else await save(content, from);
    } catch (error) {
      if (error instanceof changes.Conflict) setConflict(error);
      else setFailure(error.message);
    }
    setBusy(false);
  };
  const takeTheirs = () => {
    setBase(conflict.theirs);
    setState(split(conflict.theirs.config));
    setConflict(null);
    setAnswer(null);
  };
  const onSubmit = (event) => {
    event.preventDefault();
    submit(answer === null);
  };
  return html`<${Dialog} title=${config ? f.changeTitle(config.id) : f.addTitle} onClose=${close} wide=${true}>
    <form class="form" onSubmit=${onSubmit}>
      ${daemons.length > 1 && html`<${Field} label=${t.sources.daemon} id="source-daemon"><select id="source-daemon" value=${daemon} onChange=${(e) => { setDaemon(e.target.value); set("model", undefined); }}>
        ${daemons.map((name) => html`<option>${name}</option>`)}</select><//>`}
      ${!config && html`
        <${Field} label=${f.type} id="source-type"><select id="source-type" value=${values.type} onChange=${(e) => set("type", e.target.value)}>
          ${Object.keys(FIELDS).map((type) => html`<option value=${type}>${t.sources.kinds[type]}</option>`)}</select><//>
        <${Field} label=${f.id} hint=${f.idHint} id="source-id"><input id="source-id" required pattern="[A-Za-z0-9_.\\-]+" maxlength="64" value=${values.id}
          aria-describedby="source-id-hint" spellcheck="false" onInput=${(e) => set("id", e.target.value)} /><//>`}
      ${fieldsOf(values.type).map(([key, label, hint, how]) => (how !== "models" || models.length > 1) && html`<${Control} key=${key} ...${{ name: key, label, hint, how, models }} value=${values[key]} set=${set} />`)}
      <details class="field wide-field"><summary>${f.more}</summary>
        <textarea aria-label=${f.more} rows="5" spellcheck="false" value=${others} aria-describedby="source-more-hint"
          onInput=${(e) => { setState((before) => ({ ...before, others: e.target.value })); setAnswer(null); }}></textarea>
        <p class="hint" id="source-more-hint">${f.moreHint}</p></details>
      <${Answer} answer=${answer} busy=${busy} />
      ${failure && html`<${Notice} kind="error">${failure}<//>`}
      ${conflict && html`<${Notice} kind="error"><p>${f.meanwhile(conflict.keys)}</p><p class="dialog-actions">
        <button type="button" onClick=${takeTheirs}>${f.takeTheirs}</button>
        <button type="button" class="danger" onClick=${() => submit(false, conflict.theirs)}>${f.saveMine}</button></p><//>`}
      <p class="dialog-actions"><button type="button" onClick=${close}>${t.cancel}</button>
        ${answer === null
          ? html`<button class="primary" disabled=${busy}>${f.check}</button>`
          : html`<button class="primary" disabled=${busy}>${answer.ok ? t.save : f.anyway}</button>`}</p>
    </form><//>`;
}

function Control({ name, label, hint, how, models, value, set }) {
  const id = `source-${name}`;
  const described = hint ? { "aria-describedby": `${id}-hint` } : {};
  if (how === "flag") {
    return html`<label class="switch field"><input type="checkbox" role="switch" checked=${value ?? false} onChange=${(e) => set(name, e.target.checked)} /><span>${label}</span></label>`;
  }
  if (how === "models") {
    const chosen = value || [];
    const choose = (one, on) => set(name, on ? [...chosen, one] : chosen.filter((other) => other !== one));
    return html`<fieldset class="field" ...${described}><legend>${label}</legend>
      ${[...new Set([...models, ...chosen])].map((one) => html`<label class="switch" key=${one}><input type="checkbox" checked=${chosen.includes(one)} onChange=${(e) => choose(one, e.target.checked)} />${one}</label>`)}
      <p class="hint" id=${`${id}-hint`}>${hint}</p></fieldset>`;
  }
  const choices = how === "tracking" ? Object.entries(f.trackings) : Array.isArray(how) ? how.map((one) => [one, one]) : null;
  if (choices) {
    return html`<${Field} label=${label} id=${id}><select id=${id} value=${value ?? choices[0][0]} onChange=${(e) => set(name, e.target.value)}>
      ${choices.map(([key, words]) => html`<option value=${key}>${words}</option>`)}</select><//>`;
  }
  return html`<${Field} label=${label} hint=${hint} id=${id}><input id=${id} type=${how === "password" ? "password" : "text"} ...${described}
    inputmode=${how === "number" ? "decimal" : null} autocomplete="off" spellcheck="false" value=${value ?? ""} onInput=${(e) => set(name, e.target.value)} /><//>`;
}

function Answer({ answer, busy }) {
  if (busy && !answer) return html`<p class="quiet" role="status">${f.checking}</p>`;
  if (!answer) return html`<p class="quiet">${f.unchecked}</p>`;
  return html`<section class=${`check ${answer.ok ? "is-good" : "is-bad"}`} role="status"><h3>${f.checkTitle}</h3>
    <p>${answer.ok ? f.checkGood : f.checkBad}</p>
    ${answer.lines?.length > 0 && html`<pre>${answer.lines.join("\n")}</pre>`}</section>`;
}
