// Filters of the review, which live in the address.
import { html, useState } from "../html.js";
import { daemons, sources } from "../model.js";
import { Field } from "../parts.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { NAMES } from "./list.js";

export const filtersOf = (query) => Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));

const distinct = (values) => [...new Set(values.filter(Boolean))].sort();

export function Filters({ filters, events, set }) {
  const [isOpen, setOpen] = useState(false); // on a phone, where they would fill the screen
  const all = [...useStore(sources).values()];
  const several = useStore(daemons).size > 1;
  const attributes = events.map((event) => event.attribute).filter(Boolean);
  const options = {
    daemon: all.map((row) => row.daemon),
    source: all.map((row) => row.id),
    rule: [...all.flatMap((row) => (row.rules ?? []).map((rule) => rule.name)), ...events.map((row) => row.rule)],
    label: [...all.flatMap((row) => row.labels ?? []), ...events.map((row) => row.label)],
    attribute: attributes.flatMap(({ name, value }) => [name, `${name}=${value}`]),
  };
  const choice = (name, label, values, words = (value) => value) => html`<${Field} label=${label} id=${`filter-${name}`}>
    <select id=${`filter-${name}`} value=${filters[name]} onChange=${(event) => set({ [name]: event.target.value })}>
      <option value="">${t.all}</option>
      ${distinct([...values, filters[name]]).map((value) => html`<option value=${value}>${words(value)}</option>`)}</select><//>`;
  const time = (name, label) => html`<div class="field time-field"><label for=${`filter-${name}`}>${label}</label><input
    id=${`filter-${name}`} type="datetime-local" step="1" value=${filters[name]} onChange=${(event) => set({ [name]: event.target.value })} /></div>`;
  const count = NAMES.filter((name) => filters[name]).length;
  return html`<button type="button" class="filters-button" aria-expanded=${isOpen ? "true" : "false"} aria-controls="filters"
      onClick=${() => setOpen(!isOpen)}>${t.review.filters(count)}</button>
    <form id="filters" class=${`filters ${isOpen ? "is-open" : ""}`} aria-label=${t.events.filters} onSubmit=${(event) => event.preventDefault()}>
    ${several && choice("daemon", t.events.daemon, options.daemon)}
    ${choice("source", t.events.camera, options.source)}
    ${choice("type", t.events.kind, Object.keys(t.events.kinds), (value) => t.events.kinds[value] ?? value)}
    ${choice("rule", t.events.rule, options.rule)}
    ${choice("label", t.events.label, options.label)}
    ${(attributes.length > 0 || filters.attribute) && choice("attribute", t.review.attribute, options.attribute)}
    ${choice("seen", t.review.seenFilter, ["no", "yes"], (value) => t.review.seenOptions[value] ?? value)}
    ${time("after", t.events.after)}${time("before", t.events.before)}
    ${count > 0 && html`<button type="button" class="plain"
      onClick=${() => set(Object.fromEntries(NAMES.map((name) => [name, ""])))}>${t.events.clear}</button>`}
  </form>`;
}
