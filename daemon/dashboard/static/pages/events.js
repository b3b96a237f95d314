// What happened: filters, pictures, and a link for each event. New events appear by themselves.
import { at, get } from "../api.js";
import { EventPicture, EventRow, linkOf } from "../event_row.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { daemons, events, gaps, missed, sources } from "../model.js";
import { Dialog, Empty, Facts, Field, Notice } from "../parts.js";
import { back, setQuery, withQuery } from "../router.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";

const NAMES = ["daemon", "source", "type", "rule", "label", "after", "before"];
const PAGE = 60;

const filtersOf = (query) => Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));

/** Local time of an input to seconds since 1970, and back. */
const toSeconds = (local) => (local ? new Date(local).getTime() / 1000 : null);

function addressOf(filters, cursor) {
  const query = new URLSearchParams({ limit: PAGE });
  for (const name of NAMES) {
    const value = name === "after" || name === "before" ? toSeconds(filters[name]) : filters[name];
    if (value) query.set(name, value);
  }
  if (cursor) query.set("cursor", cursor);
  return `/api/events?${query}`;
}

export function matches(event, filters) {
  const own = { daemon: event.daemon, source: event.source, type: event.kind, rule: event.rule, label: event.label };
  const s = event.at / 1e9;
  return Object.entries(own).every(([name, value]) => !filters[name] || filters[name] === value)
    && (!filters.after || s >= toSeconds(filters.after)) && (!filters.before || s <= toSeconds(filters.before));
}

function usePages(filters) {
  const [state, setState] = useState({ rows: [], cursor: null, missing: [], busy: true, failure: null });
  const key = `${JSON.stringify(filters)} ${useStore(missed)}`;
  const load = async (rows, cursor, isCurrent = () => true) => {
    setState((before) => ({ ...before, busy: true, failure: null }));
    try {
      const found = await get(addressOf(filters, cursor));
      if (isCurrent()) setState({ rows: [...rows, ...found.events], cursor: found.cursor, missing: found.missing ?? [], busy: false, failure: null });
    } catch (error) {
      if (isCurrent()) setState({ rows, cursor, missing: [], busy: false, failure: error.message });
    }
  };
  useEffect(() => {
    let current = true;
    const timer = setTimeout(() => load([], null, () => current), 150); // while somebody types
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [key]);
  return { ...state, more: () => load(state.rows, state.cursor) };
}

export default function Events({ route }) {
  const filters = filtersOf(route.query);
  const open = route.query.get("event");
  const page = usePages(filters);
  const fresh = useStore(events).filter((event) => matches(event, filters));
  const known = new Set(page.rows.map((event) => event.id));
  // What the journal has between the last row of the page and those that came before it is not here yet.
  const last = page.cursor ? page.rows[page.rows.length - 1].at : 0;
  const rows = [...fresh.filter((event) => !known.has(event.id) && event.at >= last), ...page.rows].sort((a, b) => b.at - a.at);
  const set = (changes) => setQuery({ ...filters, ...changes, event: "" });
  return html`
    <div class="bar"><h1>${t.events.title} <small>${t.events.live}</small></h1></div>
    <${Filters} filters=${filters} rows=${rows} set=${set} />
    ${page.failure && html`<${Notice} kind="error">${page.failure}<//>`}
    <${Gaps} missing=${page.missing} />
    ${page.missing.map((row) => html`<${Notice} kind="warning">${t.events.missing(row)}<//>`)}
    ${!rows.length && !page.busy && !page.failure && html`<${Empty} title=${t.events.none}><p>${t.events.noneHint}</p><//>`}
    <ul class="event-list" aria-label=${t.events.title}>${rows.map((event) => html`<${EventRow} key=${event.daemon + event.id} event=${event}
      href=${withQuery({ ...filters, event: `${event.daemon}/${event.id}` })} fresh=${!known.has(event.id)} />`)}</ul>
    ${page.cursor && html`<button onClick=${page.more} disabled=${page.busy}>${t.events.more}</button>`}
    ${open && html`<${Opened} key=${open} path=${open} rows=${rows} onClose=${() => back(withQuery(filters))} />`}`;
}

/** When no messages came of daemons without a journal: what happened then is nowhere. */
function Gaps({ missing }) {
  const without = [...useStore(daemons).values()].map((row) => row.name)
    .filter((name) => !daemons.value.get(name).http || missing.some((row) => row.daemon === name));
  const rows = useStore(gaps).map((gap) => ({ ...gap, names: without.filter((name) => gap.daemon === null || gap.daemon === name) }));
  return rows.filter((gap) => gap.names.length).slice(-3).map((gap) => html`<${Notice} key=${gap.from} kind="warning">
    ${t.events.gap(format.timeOf(gap.from), format.timeOf(gap.until), gap.names.join(", "))}<//>`);
}

function Filters({ filters, rows, set }) {
  const all = [...useStore(sources).values()];
  const several = useStore(daemons).size > 1;
  const distinct = (values) => [...new Set(values.filter(Boolean))].sort();
  const options = {
    daemon: distinct(all.map((row) => row.daemon)),
    source: distinct(all.map((row) => row.id)),
    rule: distinct([...all.flatMap((row) => (row.rules ?? []).map((rule) => rule.name)), ...rows.map((row) => row.rule)]),
    label: distinct([...all.flatMap((row) => row.labels ?? []), ...rows.map((row) => row.label)]),
  };
  const choice = (name, label, values, words = (value) => value) => html`<${Field} label=${label} id=${`filter-${name}`}>
    <select id=${`filter-${name}`} value=${filters[name]} onChange=${(event) => set({ [name]: event.target.value })}>
      <option value="">${t.all}</option>
      ${distinct([...values, filters[name]]).map((value) => html`<option value=${value}>${words(value)}</option>`)}</select><//>`;
  const time = (name, label) => html`<${Field} label=${label} id=${`filter-${name}`}><input id=${`filter-${name}`}
    type="datetime-local" value=${filters[name]} onChange=${(event) => set({ [name]: event.target.value })} /><//>`;
  return html`<form class="filters" aria-label=${t.events.filters} onSubmit=${(event) => event.preventDefault()}>
    ${several && choice("daemon", t.events.daemon, options.daemon)}
    ${choice("source", t.events.camera, options.source)}
    ${choice("type", t.events.kind, Object.keys(t.events.kinds), (value) => t.events.kinds[value] ?? value)}
    ${choice("rule", t.events.rule, options.rule)}
    ${choice("label", t.events.label, options.label)}
    ${time("after", t.events.after)}${time("before", t.events.before)}
    ${NAMES.some((name) => filters[name]) && html`<button type="button" class="plain"
      onClick=${() => set(Object.fromEntries(NAMES.map((name) => [name, ""])))}>${t.events.clear}</button>`}
  </form>`;
}

function Opened({ path, rows, onClose }) {
  const cut = path.indexOf("/");
  const [daemon, id] = [path.slice(0, cut), path.slice(cut + 1)];
  const [event, setEvent] = useState(rows.find((row) => row.daemon === daemon && row.id === id) ?? null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    if (!event) {
      get(`/api/events/${at(daemon, id)}`).then(setEvent, (error) =>
        setFailure(error.status === 404 ? t.events.gone : error.message));
    }
  }, [path]);
  return html`<${Dialog} title=${event ? t.events.say(event) : t.events.details} onClose=${onClose} wide=${true}>
    ${failure && html`<${Notice} kind="error">${failure}<//>`}
    ${event && html`<${Details} event=${{ daemon, ...event }} />`}
  <//>`;
}

function Details({ event }) {
  const [copied, setCopied] = useState("");
  const { unseen } = event;
  const copy = () => navigator.clipboard?.writeText(new URL(linkOf(event), location.href).href)
    .then(() => setCopied(t.events.copied), () => setCopied(t.events.copyFailed)) ?? setCopied(t.events.copyFailed);
  return html`
    ${event.has_snapshot
      ? html`<${EventPicture} event=${event} name="snapshot" words=${t.events.say(event)} />`
      : html`<p class="quiet">${t.events.noPicture}</p>`}
    <${Facts} rows=${[
      [t.events.when, html`<time datetime=${format.isoOf(event.at / 1e9)}>${format.dateOf(event.at / 1e9)}</time>`],
      [t.events.camera, html`<a href=${`/camera/${at(event.daemon, event.source)}`}>${event.source}</a>`],
      [t.events.daemon, event.daemon],
      [t.events.kind, t.events.kinds[event.kind] ?? event.kind],
      event.rule && [t.events.rule, event.rule],
      event.label && [t.events.label, event.label],
      event.track != null && [t.events.track, `#${event.track}`],
      event.direction && [t.events.direction, t.events.directions[event.direction]],
      event.dwell != null && [t.events.dwell, format.seconds(event.dwell / 1e9)],
      event.count != null && [t.events.count, event.count],
      event.reason && [t.events.reason, t.events.reasons[event.reason] ?? event.reason],
      [t.events.confirmed, format.seconds((event.confirmed_at - event.at) / 1e9)],
      unseen && [t.events.unseen, t.events.unseenValue(unseen.frames, format.seconds((unseen.longest_gap ?? 0) / 1e9))],
    ]} />
    <p class="dialog-actions"><button onClick=${copy}>${t.events.copy}</button><span role="status">${copied}</span></p>`;
}
