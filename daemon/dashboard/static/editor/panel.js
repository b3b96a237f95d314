// The settings of the chosen rule, and its points as numbers.
import { html, useEffect, useState } from "../html.js";
import { Field, Icon } from "../parts.js";
import { t } from "../texts.js";
import * as shapes from "./shapes.js";

const NUMBERS = {
  zone: [["enter_s", t.rules.enter, 0.3], ["exit_s", t.rules.exit, 1]],
  line: [["cooldown_s", t.rules.cooldown, 0]],
  gate: [["cooldown_s", t.rules.cooldown, 0]],
};

/** A text field that tells of its value when it is left, or with Enter: half a number is no number. */
function Text({ value, onValue, ...more }) {
  const [text, setText] = useState(String(value));
  useEffect(() => setText(String(value)), [value]);
  const give = () => {
    if (text !== String(value) && onValue(text) === false) setText(String(value));
  };
  return html`<input type="text" spellcheck="false" autocomplete="off" value=${text} ...${more}
    onInput=${(event) => setText(event.target.value)} onBlur=${give} onKeyDown=${(event) => event.key === "Enter" && give()} />`;
}

const listOf = (text) => text.split(",").map((part) => part.trim()).filter(Boolean);

export function RulePanel({ rule, selected, locked, onSelect, onChange, onRemove, onAddPart }) {
  const rest = (key, value) => onChange({ ...rule, rest: { ...rule.rest, [key]: value } });
  const number = (key) => (text) => Number.isFinite(Number(text)) && Number(text) >= 0 && rest(key, Number(text));
  const dwells = (text) => {
    const values = listOf(text).map(Number);
    return values.every((value) => value > 0) && rest("dwell_s", values.sort((a, b) => a - b));
  };
  const crowd = (text) => text === "" ? rest("crowd", null)
    : Number.isInteger(Number(text)) && Number(text) >= 0 && rest("crowd", { ...rule.rest.crowd, over: Number(text) });
  return html`<section class="panel"><h2>${rule.name}</h2>
    <fieldset disabled=${locked}>
    <${Field} label=${t.rules.name} id="rule-name"><${Text} id="rule-name" value=${rule.name} maxlength="64" onValue=${(name) => onChange({ ...rule, name: name.trim() })} /><//>
    <${Field} label=${t.rules.anchor} id="rule-anchor"><select id="rule-anchor" value=${rule.rest.anchor ?? "bottom"} onChange=${(event) => rest("anchor", event.target.value)}>
      ${Object.entries(t.rules.anchors).map(([key, words]) => html`<option value=${key}>${words}</option>`)}</select><//>
    <${Field} label=${t.rules.labels} hint=${t.rules.labelsHint} id="rule-labels"><${Text} id="rule-labels" value=${(rule.rest.labels ?? []).join(", ")} aria-describedby="rule-labels-hint"
      onValue=${(text) => rest("labels", listOf(text).length ? listOf(text) : null)} /><//>
    <div class="pair">${NUMBERS[rule.type].map(([key, label, initial]) => html`<${Field} label=${label} id=${`rule-${key}`}><${Text} id=${`rule-${key}`} inputmode="decimal" value=${rule.rest[key] ?? initial} onValue=${number(key)} /><//>`)}</div>
    ${rule.type === "zone" && html`<div class="pair">
      <${Field} label=${t.rules.dwell} hint=${t.rules.dwellHint} id="rule-dwell"><${Text} id="rule-dwell" value=${(rule.rest.dwell_s ?? []).join(", ")} aria-describedby="rule-dwell-hint" onValue=${dwells} /><//>
      <${Field} label=${t.rules.crowd} hint=${t.rules.crowdHint} id="rule-crowd"><${Text} id="rule-crowd" inputmode="numeric" value=${rule.rest.crowd?.over ?? ""} aria-describedby="rule-crowd-hint" onValue=${crowd} /><//></div>`}
    <${Points} ...${{ rule, selected, onSelect, onChange, onRemove }} />
    <p class="dialog-actions">
      ${rule.type === "zone" && html`<button onClick=${onAddPart}>${t.rules.addPart}</button>`}
      ${rule.type !== "zone" && html`<button onClick=${() => onChange(shapes.reverse(rule))}>${t.rules.reverse}</button>`}
      <button class="danger" onClick=${() => onRemove({ ...selected, index: null })}>${t.rules.remove}</button></p>
    </fieldset></section>`;
}

function Points({ rule, selected, onSelect, onChange, onRemove }) {
  const set = (part, index, axis) => (text) => {
    const value = Number(text.replace(",", "."));
    if (!Number.isFinite(value) || value < 0 || value > 1) return false;
    const point = rule.parts[part][index];
    return onChange(shapes.movePoint(rule, part, index, axis ? [point[0], value] : [value, point[1]]));
  };
  return html`<details open><summary>${t.rules.points}</summary><p class="hint">${t.rules.numberHint}</p>
    ${rule.parts.map((points, part) => html`
      ${rule.parts.length > 1 && html`<h3>${t.rules.part(part + 1)}
        ${rule.type === "zone" && html`<button class="plain" onClick=${() => onChange({ ...rule, parts: rule.parts.filter((_, i) => i !== part) })}>${t.rules.removePart}</button>`}</h3>`}
      <table class="points"><thead><tr><th>#</th><th>${t.rules.x}</th><th>${t.rules.y}</th><th><span class="spoken">${t.sources.actions}</span></th></tr></thead>
      <tbody>${points.map((point, index) => html`<tr key=${index} class=${selected.part === part && selected.index === index ? "is-chosen" : ""} onFocusIn=${() => onSelect({ rule: selected.rule, part, index })}>
        <th scope="row">${index + 1}</th>
        ${[0, 1].map((axis) => html`<td><${Text} inputmode="decimal" aria-label=${`${axis ? t.rules.y : t.rules.x} ${index + 1}`} value=${point[axis]} onValue=${set(part, index, axis)} /></td>`)}
        <td class="actions"><button class="plain" aria-label=${`${t.rules.addPoint} ${index + 1}`} title=${t.rules.addPoint} onClick=${() => onChange(shapes.addPoint(rule, part, index))}>+</button>
          <button class="plain" aria-label=${`${t.rules.deletePoint} ${index + 1}`} title=${t.rules.deletePoint} onClick=${() => onRemove({ rule: selected.rule, part, index })}><${Icon} name="bin" /></button></td>
      </tr>`)}</tbody></table>`)}</details>`;
}
