// The view of bars in the address, and the controls that change it.
import { html, useEffect, useRef, useState } from "../html.js";
import { noteQuery } from "../router.js";
import { t } from "../texts.js";
import * as scale from "./scale.js";
import { now } from "./tiles.js";

const WRITE_MS = 400; // browsers refuse more than some changes of the address in a while

/** Changes of the query that are written together, at most a few times a second. */
export function useAddress() {
  const state = useRef({ timer: 0, values: {}, isOver: false });
  useEffect(() => () => {
    clearTimeout(state.current.timer);
    state.current.isOver = true; // the address is that of another page by then
  }, []);
  return (values) => {
    const { current } = state;
    if (current.isOver) return;
    current.values = { ...current.values, ...values };
    if (current.timer) return;
    current.timer = setTimeout(() => {
      current.timer = 0;
      const query = Object.fromEntries(new URLSearchParams(location.search));
      noteQuery({ ...query, ...current.values });
    }, WRITE_MS);
  };
}

/** A view as an address has it: a whole day, or from when and how many seconds. */
function ofQuery(query) {
  const day = scale.viewOfDay(query.get("day"));
  if (day) return day;
  const [begin, span] = [Date.parse(query.get("from") ?? ""), Number(query.get("zoom")) * 1000];
  return Number.isFinite(begin) && span > 0 ? scale.around(begin + span / 2, span) : null;
}

function toQuery(view) {
  const date = scale.dateOf((view.begin + view.end) / 2);
  const day = scale.viewOfDay(date);
  if (day.begin === view.begin && day.end === view.end) return { day: date, from: "", zoom: "" };
  return { day: "", from: scale.isoOf(Math.round(view.begin)), zoom: Math.max(1, Math.round((view.end - view.begin) / 1000)) };
}

/** @param initial of an address that says nothing */
export function useView(route, initial) {
  const [view, setView] = useState(() => ofQuery(route.query) ?? initial());
  const write = useAddress();
  const set = (next) => {
    setView(next);
    write(toQuery(next));
  };
  return [view, set];
}

const SPANS = [["days32", 32 * scale.DAY], ["week", 7 * scale.DAY], ["hour", 3600000], ["minute", 60000]];

/** The day, and how much is seen at once: around a moment, if the view has it. */
export function ViewTools({ view, setView, at = null }) {
  const isSeen = at !== null && view.begin <= at && at <= view.end;
  const middle = isSeen ? at : Math.min(now(), (view.begin + view.end) / 2);
  const date = scale.dateOf(middle);
  const input = useRef(null);
  const write = () => (input.current.value = date);
  useEffect(() => {
    if (document.activeElement !== input.current) write(); // somebody may be typing
  }, [date]);
  const choose = (event) => {
    const day = scale.viewOfDay(event.target.value);
    if (day) setView(day);
  };
  return html`<div class="controls past-view" role="group" aria-label=${t.recordings.view}>
    <button onClick=${() => setView(scale.neighbourDay(view, -1))}>${t.recordings.dayBefore}</button>
    <label class="past-day"><span class="spoken">${t.recordings.day}</span>
      <input type="date" ref=${input} onBlur=${write} max=${scale.dateOf(now())} onChange=${choose} /></label>
    <button onClick=${() => setView(scale.neighbourDay(view, 1))} disabled=${view.end >= now()}>${t.recordings.dayAfter}</button>
    <button class="icon-only" aria-label=${t.recordings.zoomIn} title=${t.recordings.zoomIn} onClick=${() => setView(scale.zoomed(view, 0.5, middle))}>+</button>
    <button class="icon-only" aria-label=${t.recordings.zoomOut} title=${t.recordings.zoomOut} onClick=${() => setView(scale.zoomed(view, 2, middle))}>−</button>
    ${SPANS.map(([name, span]) => html`<button class="plain" onClick=${() => setView(scale.around(middle, span))}>${t.recordings.spans[name]}</button>`)}
  </div>`;
}
