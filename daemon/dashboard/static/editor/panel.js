// The settings of the chosen rule, and its points as numbers.
import { html, useEffect, useState } from "../html.js";
import { Field, Icon } from "../parts.js";
import { t } from "../texts.js";
import * as shapes from "./shapes.js";

const NUMBERS = {
  zone: [["enter_s", t.rules.enter, 0.3], ["exit_s", t.rules.exit, 1]],
  line: [["cooldown_s", t.rules.cooldown, 0]],
  gate: [["cooldown_s", t.rules.cooldown, 0]],
  object: [],
};

/**
 * A text field that tells of its value when it is left, or with Enter: half a number is no number.
 * @param onValue returns why the value cannot be, or nothing
 */
function Text({ id, value, onValue, describedBy = null, ...more }) {
  const [text, setText] = useState(String(value));
  const [refusal, setRefusal] = useState(null);
  useEffect(() => {
    setText(String(value));
    setRefusal(null);
  }, [value]);
  const give = () => {
    const why = text === String(value) ? null : onValue(text);
    setRefusal(typeof why === "string" ? why : null);
  };
  const onKey = (event) => {
    if (event.key === "Enter") give();
    if (event.key !== "Escape" || !refusal) return;
    setText(String(value));
    setRefusal(null);
  };
  const described = [describedBy, refusal && `${id}-refusal`].filter(Boolean).join(" ") || null;
  return html`<input id=${id} type="text" spellcheck="false" autocomplete="off" value=${text} ...${more} aria-invalid=${refusal ? "true" : null}
      aria-describedby=${described} onInput=${(event) => setText(event.target.value)} onBlur=${give} onKeyDown=${onKey} />
    ${refusal && html`<p class="hint refusal" id=${`${id}-refusal`} role="alert">${refusal}</p>`}`;
}

/** A number as people type it, with a comma or a point; why it cannot be, in words, if it cannot. */
export function numberOf(text, low = 0, high = Infinity) {
  const value = text.trim() === "" ? NaN : Number(text.trim().replace(",", "."));
  if (!Number.isFinite(value)) return t.rules.notNumber;
  return value < low || value > high ? t.rules.notFrom(low, high) : value;
}

const percentOf = (share) => Math.round(share * 1e4) / 100;

const listOf = (text) => text.split(",").map((part) => part.trim()).filter(Boolean);

export function RulePanel({ rule, selected, locked, onSelect, onChange, onRemove, onAddPart }) {
  const rest = (key, value) => onChange({ ...rule, rest: { ...rule.rest, [key]: value } });
  /** Take a number, or say why not. */
  const take = (text, [low, high], set) => {
    const value = numberOf(text, low, high);
    if (typeof value === "string") return value;
    set(value);
    return null;
  };
  const number = (key) => (text) => take(text, [0, 86400], (value) => rest(key, value));
  const share = (key) => (text) => take(text, [0, 100], (value) => rest(key, value / 100));
  const dwells = (text) => {
    const values = listOf(text).map((one) => numberOf(one, 0.001, 86400));
    const wrong = values.find((value) => typeof value === "string");
    if (!wrong) rest("dwell_s", values.sort((a, b) => a - b));
    return wrong;
  };
  const crowd = (text) => {
    if (text.trim() === "") return void rest("crowd", null);
    const value = numberOf(text, 0, 10000);
    if (typeof value === "string") return value;
    return Number.isInteger(value) ? void rest("crowd", { ...rule.rest.crowd, over: value }) : t.rules.notWhole;
  };
  const zone = (text) => void rest("timezone", text.trim() || null);
  /** Times need a time zone, and a zone without times means nothing. */
  const times = (text) => {
    const active = text.trim() || null;
    const timezone = active && (rule.rest.timezone ?? Intl.DateTimeFormat().resolvedOptions().timeZone);
    onChange({ ...rule, rest: { ...rule.rest, active, timezone } });
  };
  const isPlaced = rule.type !== "object";
  return html`<section class="panel"><h2>${rule.name}</h2>
    <fieldset disabled=${locked}>
    <${Field} label=${t.rules.name} id="rule-name"><${Text} id="rule-name" value=${rule.name} maxlength="64" onValue=${(name) => void onChange({ ...rule, name: name.trim() })} /><//>
    ${isPlaced && html`<${Field} label=${t.rules.anchor} id="rule-anchor"><select id="rule-anchor" value=${rule.rest.anchor ?? "bottom"} onChange=${(event) => rest("anchor", event.target.value)}>
      ${Object.entries(t.rules.anchors).map(([key, name]) => html`<option value=${key}>${name}</option>`)}</select><//>`}
    <${Field} label=${t.rules.labels} hint=${t.rules.labelsHint} id="rule-labels"><${Text} id="rule-labels" value=${(rule.rest.labels ?? []).join(", ")} describedBy="rule-labels-hint"
      onValue=${(text) => void rest("labels", listOf(text).length ? listOf(text) : null)} /><//>
    <div class="pair">${NUMBERS[rule.type].map(([key, label, initial]) => html`<${Field} label=${label} id=${`rule-${key}`}><${Text} id=${`rule-${key}`} inputmode="decimal" value=${rule.rest[key] ?? initial} onValue=${number(key)} /><//>`)}</div>
    ${rule.type === "zone" && html`<div class="pair">
      <${Field} label=${t.rules.dwell} hint=${t.rules.dwellHint} id="rule-dwell"><${Text} id="rule-dwell" value=${(rule.rest.dwell_s ?? []).join(", ")} describedBy="rule-dwell-hint" onValue=${dwells} /><//>
      <${Field} label=${t.rules.crowd} hint=${t.rules.crowdHint} id="rule-crowd"><${Text} id="rule-crowd" inputmode="numeric" value=${rule.rest.crowd?.over ?? ""} describedBy="rule-crowd-hint" onValue=${crowd} /><//></div>`}
    <div class="pair">
      <${Field} label=${t.rules.minArea} id="rule-min_area"><${Text} id="rule-min_area" inputmode="decimal" value=${percentOf(rule.rest.min_area ?? 0)} onValue=${share("min_area")} /><//>
      <${Field} label=${t.rules.maxArea} id="rule-max_area"><${Text} id="rule-max_area" inputmode="decimal" value=${percentOf(rule.rest.max_area ?? 1)} onValue=${share("max_area")} /><//></div>
    <div class="pair">
      <${Field} label=${t.rules.active} hint=${t.rules.activeHint} id="rule-active"><${Text} id="rule-active" value=${rule.rest.active ?? ""} describedBy="rule-active-hint" onValue=${times} /><//>
      <${Field} label=${t.rules.timezone} hint=${t.rules.timezoneHint} id="rule-timezone"><${Text} id="rule-timezone" value=${rule.rest.timezone ?? ""} describedBy="rule-timezone-hint" onValue=${zone} disabled=${!rule.rest.active} /><//></div>
    ${isPlaced && html`<${Points} ...${{ rule, selected, onSelect, onChange, onRemove }} />`}
    <p class="dialog-actions">
      ${rule.type === "zone" && html`<button onClick=${onAddPart}>${t.rules.addPart}</button>`}
      ${isPlaced && rule.type !== "zone" && html`<button onClick=${() => onChange(shapes.reverse(rule))}>${t.rules.reverse}</button>`}
      <button class="danger" onClick=${() => onRemove({ ...selected, index: null })}>${t.rules.remove}</button></p>
    </fieldset></section>`;
}

function Points({ rule, selected, onSelect, onChange, onRemove }) {
  const set = (part, index, axis) => (text) => {
    const value = numberOf(text, 0, 1);
    if (typeof value === "string") return value;
    const point = rule.parts[part][index];
    return void onChange(shapes.movePoint(rule, part, index, axis ? [point[0], value] : [value, point[1]]));
  };
  return html`<details open><summary>${t.rules.points}</summary><p class="hint">${t.rules.numberHint}</p>
    ${rule.parts.map((points, part) => html`
      ${rule.parts.length > 1 && html`<h3>${t.rules.part(part + 1)}
        ${rule.type === "zone" && html`<button class="plain" onClick=${() => onChange({ ...rule, parts: rule.parts.filter((_, i) => i !== part) })}>${t.rules.removePart}</button>`}</h3>`}
      <table class="points"><thead><tr><th>#</th><th>${t.rules.x}</th><th>${t.rules.y}</th><th><span class="spoken">${t.sources.actions}</span></th></tr></thead>
      <tbody>${points.map((point, index) => html`<tr key=${index} class=${selected.part === part && selected.index === index ? "is-chosen" : ""} onFocusIn=${() => onSelect({ rule: selected.rule, part, index })}>
        <th scope="row">${index + 1}</th>
        ${[0, 1].map((axis) => html`<td><${Text} id=${`point-${part}-${index}-${axis}`} inputmode="decimal" aria-label=${`${axis ? t.rules.y : t.rules.x} ${index + 1}`} value=${point[axis]} onValue=${set(part, index, axis)} /></td>`)}
        <td class="actions"><button class="plain" aria-label=${`${t.rules.addPoint} ${index + 1}`} title=${t.rules.addPoint} onClick=${() => onChange(shapes.addPoint(rule, part, index))}>+</button>
          <button class="plain" aria-label=${`${t.rules.deletePoint} ${index + 1}`} title=${t.rules.deletePoint} onClick=${() => onRemove({ rule: selected.rule, part, index })}><${Icon} name="bin" /></button></td>
      </tr>`)}</tbody></table>`)}</details>`;
}
