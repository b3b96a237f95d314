// What happened, to be looked through: a card for each track, groups of what belongs together, marks of what was seen.
import * as format from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { daemons, gaps, mayChange } from "../model.js";
import { Empty, Notice } from "../parts.js";
import { useActions } from "../review/actions.js";
import { Filters, filtersOf } from "../review/filters.js";
import { Help, useKeys } from "../review/keys.js";
import { EventList } from "../review/list.js";
import { Opened, PLACE } from "../review/opened.js";
import { cardsOf, itemsOf, Rows } from "../review/row.js";
import { failure, keeping, loadKeeping, marks } from "../review/seen.js";
import { stop, toggle } from "../review/thumb.js";
import { zoneWords } from "../review/words.js";
import { back, setQuery, withQuery } from "../router.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";

const AT_TOP = 40; // pixels from the top, from where new events appear by themselves

/** Whether nobody looks at something in the list that would move. */
const isCalm = (list) => window.scrollY < AT_TOP && !document.querySelector("dialog[open]")
  && !list?.matches(":hover") && !list?.contains(document.activeElement);

function useList(filters) {
  const list = useMemo(() => new EventList(filters), [JSON.stringify(filters)]);
  useEffect(() => list.start(), [list]);
  useStore(list.state);
  return list;
}

const has = (item, id) => item.events.some((event) => event.id === id);

/**
 * The row that the keyboard is at. Keys come faster than rows are drawn: what they do is known at once.
 * @returns {{key, step, pick, here}}
 */
function usePlace(list, open, opened, { show, say }) {
  const element = useRef(null);
  const at = useRef({ key: null, id: null, wanted: false }); // a row, its event, and whether it is to get the focus
  const [, redraw] = useState(0);
  const rows = () => (opened.current ? cardsOf(list.groups) : itemsOf(list.groups, open.current));
  const indexIn = (items) => {
    const id = opened.current ?? at.current.id;
    const found = opened.current ? -1 : items.findIndex((item) => item.key === at.current.key);
    return found >= 0 || id === null ? found : items.findIndex((item) => has(item, id));
  };
  const focus = () => {
    const row = element.current?.querySelector(`[data-key="${CSS.escape(at.current.key ?? "")}"]`);
    if (row) at.current.wanted = false;
    row?.focus();
  };
  const pick = (item) => {
    if (at.current.key === item.key) return;
    at.current = { key: item.key, id: item.lead.id, wanted: false };
    redraw((n) => n + 1);
  };
  const step = async (by) => {
    let items = rows();
    const now = indexIn(items);
    if (now + by >= items.length && list.cursor && !list.isFull) {
      await list.older();
      items = rows();
    }
    const next = items[now < 0 ? 0 : now + by];
    if (!next) return void (by > 0 && say(t.review.said.end));
    stop();
    if (opened.current) return void show(next.lead);
    pick(next);
    at.current.wanted = true;
    return void focus();
  };
  useEffect(() => void (at.current.wanted && focus()));
  return {
    element, pick, step,
    get key() {
      return at.current.key;
    },
    here: () => {
      const items = rows();
      return items[indexIn(items)] ?? null;
    },
    /** The dialog is closed: the keyboard goes on at what it showed. */
    comeTo: (id) => {
      const item = itemsOf(list.groups, open.current).find((one) => has(one, id));
      if (item) at.current = { key: item.key, id: item.lead.id, wanted: true };
      redraw((n) => n + 1);
    },
  };
}

export default function Events({ route }) {
  const filters = filtersOf(route.query);
  const path = route.query.get("event");
  const list = useList(filters);
  const [help, setHelp] = useState(false);
  const [, redraw] = useState(0);
  const open = useRef(new Set()); // keys of cards whose group shows its cards
  const opened = useRef(null); // id of the event in the dialog
  const actions = useActions();
  const zone = useMemo(zoneWords, []);
  useStore(marks);
  const plain = withQuery(filters);
  const hrefOf = (event) => `${plain}${plain.includes("?") ? "&" : "?"}event=${encodeURIComponent(`${event.daemon}/${event.id}`)}`;
  const show = (event) => {
    opened.current = event.id;
    setQuery({ ...filters, event: `${event.daemon}/${event.id}` });
  };
  const place = usePlace(list, open, opened, { show, say: actions.say });
  useEffect(() => void loadKeeping(), []);
  useEffect(() => void (list.waiting && isCalm(place.element.current) && list.show()));
  useEffect(() => {
    stop();
    if (!path && opened.current) place.comeTo(opened.current);
    opened.current = path ? path.slice(path.indexOf("/") + 1) : null;
  }, [path]);
  useEffect(() => stop, []);

  const setGroup = (item, isOpen) => {
    for (const card of item.group.cards) open.current[isOpen ? "add" : "delete"](card.key);
    redraw((n) => n + 1);
  };
  const withHere = (act) => () => {
    const item = place.here();
    if (item) act(item, item.events.find((event) => event.id === opened.current) ?? item.lead);
  };
  useKeys({
    next: () => place.step(1),
    previous: () => place.step(-1),
    mark: () => {
      const item = place.here();
      if (item) actions.mark(item.events);
      if (!item || mayChange()) void place.step(1);
    },
    undo: actions.undo,
    play: withHere((item, event) => toggle(opened.current ? PLACE : item.key, event)),
    keep: withHere((item, event) => actions.keep(event, item.card)),
    download: withHere((item, event) => actions.download(event)),
    copy: withHere((item, event) => actions.copy(event)),
    expand: withHere((item) => item.cards.length > 1 && setGroup(item, true)),
    collapse: withHere((item) => {
      setGroup(item, false);
      if (item.isPart) place.comeTo(item.lead.id);
    }),
    fresh: () => list.show(),
    help: () => setHelp(true),
  });

  const items = itemsOf(list.groups, open.current);
  const inDialog = path ? cardsOf(list.groups).find((item) => has(item, path.slice(path.indexOf("/") + 1))) : null;
  const does = {
    hrefOf, setGroup, pick: place.pick, mark: mayChange() ? (item, isSeen) => actions.mark(item.events, isSeen) : null,
    leave: () => list.waiting && isCalm(null) && list.show(),
  };
  return html`
    <div class="bar"><h1>${t.events.title} <small>${t.review.live}</small></h1>
      <p class="quiet">${t.review.zone(zone)} <button type="button" class="plain" onClick=${() => setHelp(true)}>${t.review.keys} <kbd>?</kbd></button></p></div>
    <${Filters} filters=${filters} events=${[...list.rows.values()]} set=${(changes) => setQuery({ ...filters, ...changes, event: "" })} />
    <${Troubles} list=${list} />
    ${!items.length && !list.busy && !list.failure && html`<${Empty} title=${t.events.none}><p>${t.events.noneHint}</p><//>`}
    <div class="fresh" role="status">${list.waiting > 0 && html`<button type="button" class="primary"
      aria-label=${t.review.freshHint(list.waiting)} onClick=${() => list.show(true)}>${t.review.fresh(list.waiting)}</button>`}</div>
    <${Rows} items=${items} current=${place.key} element=${place.element} does=${does} />
    ${list.isFull && html`<p class="quiet">${t.review.full(list.rows.size)}</p>`}
    ${list.cursor && !list.isFull && html`<button type="button" onClick=${() => list.older()} disabled=${list.busy}>${t.review.older}</button>`}
    <p class="said" role="status">${actions.said}</p>
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
    ${path && html`<${Opened} path=${path} item=${inDialog} actions=${{ ...actions, show }} onClose=${() => back(plain)} />`}`;
}

function Troubles({ list }) {
  const { kept, reason } = useStore(keeping);
  const failed = useStore(failure);
  return html`
    ${list.failure && html`<${Notice} kind="error">${list.failure}<//>`}
    ${failed && html`<${Notice} kind="error">${t.review.said.failed(failed)}<//>`}
    ${!kept && html`<p class="quiet">${t.review.goes(reason)}</p>`}
    <${Gaps} missing=${list.missing} />
    ${list.missing.map((row) => html`<${Notice} kind="warning">${t.events.missing(row)}<//>`)}`;
}

/** When no messages came of daemons without a journal: what happened then is nowhere. */
function Gaps({ missing }) {
  const without = [...useStore(daemons).values()].map((row) => row.name)
    .filter((name) => !daemons.value.get(name).http || missing.some((row) => row.daemon === name));
  const rows = useStore(gaps).map((gap) => ({ ...gap, names: without.filter((name) => gap.daemon === null || gap.daemon === name) }));
  return rows.filter((gap) => gap.names.length).slice(-3).map((gap) => html`<${Notice} key=${gap.from} kind="warning">
    ${t.events.gap(format.timeOf(gap.from), format.timeOf(gap.until), gap.names.join(", "))}<//>`);
}
