// The bar of one camera: it is seen, pointed at, focused, and read as a list.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { t } from "../texts.js";
import { coloursOf, drawAxis, drawBar } from "./bar_drawing.js";
import { useGestures } from "./gestures.js";
import * as scale from "./scale.js";
import { now } from "./tiles.js";
import { Happened } from "./happened.js";
import { Spans } from "./spans.js";

const LISTED = 200; // rows of the list
const NEAR_PX = 5; // of an event that is pointed at
const MANY = 500;

/** What is known of a place's time, as much as its bar shows. */
export function useTimeline(place, view) {
  const key = `${place.daemons.join()} ${place.source}`;
  const parts = useMemo(() => ({ spans: new Spans(place.daemons, place.source), happened: new Happened(place.daemons, place.source) }), [key]);
  const [, redraw] = useState(0);
  useEffect(() => {
    let frame = 0;
    const again = () => {
      if (!frame) frame = requestAnimationFrame(() => {
        frame = 0;
        redraw((n) => n + 1);
      });
    };
    const stops = [parts.spans.tiles.listen(again), parts.happened.listen(again)];
    const timer = setInterval(() => document.hidden || again(), 4000);
    again(); // what came before somebody listened
    return () => {
      cancelAnimationFrame(frame);
      clearInterval(timer);
      stops.forEach((stop) => stop());
      parts.spans.close();
      parts.happened.close();
    };
  }, [parts]);
  const { begin, end } = view;
  useEffect(() => {
    const room = (end - begin) / 2;
    parts.spans.keepTo(begin - room, end + room);
    parts.happened.keepTo(begin - room, end + room);
  }, [begin, end]);
  const { rows, isWhole } = parts.spans.rows(begin, end);
  return {
    rows, isWhole, events: parts.happened.eventsOf(begin, end), activity: parts.happened.activityOf(begin, end),
    failure: parts.spans.tiles.failure ?? parts.happened.events.failure, happened: parts.happened,
  };
}

/** What a bar has at a moment, in words. */
export function wordsAt(timeline, ms, view, width) {
  const row = timeline.rows.find((one) => one.begin <= ms && ms < one.end);
  const near = ((view.end - view.begin) / width) * NEAR_PX;
  const events = timeline.events.filter((one) => Math.abs(one.ms - ms) <= near).slice(-3);
  const most = timeline.activity.find((one) => one.ms <= ms && ms < one.ms + one.step)?.most;
  return [
    t.recordings.sayRow(row ?? null, ms > now(), timeline.isWhole),
    ...events.map(({ event }) => t.events.say(event)),
    most > 0 && t.recordings.seen(most),
  ].filter(Boolean).join(". ");
}

function useColours() {
  const [colours, setColours] = useState(coloursOf);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const change = () => setColours(coloursOf());
    dark.addEventListener("change", change);
    return () => dark.removeEventListener("change", change);
  }, []);
  return colours;
}

/** Draw again when the scene or the size of the canvas changes. */
function useDrawing(canvas, draw) {
  const latest = useRef(draw);
  latest.current = () => canvas.current && draw();
  useEffect(() => latest.current());
  useEffect(() => {
    const watcher = new ResizeObserver(() => latest.current());
    watcher.observe(canvas.current);
    return () => watcher.disconnect();
  }, []);
}

export function Axis({ view, setView }) {
  const canvas = useRef(null);
  const colours = useColours();
  useDrawing(canvas, () => drawAxis(canvas.current, { view, colours }));
  useGestures(canvas, view, { setView });
  return html`<canvas class="past-axis" ref=${canvas} aria-hidden="true"></canvas>`;
}

/**
 * @param at the moment that is marked, UTC ms
 * @param setAt called with the moment that is chosen: by keys, or by a click (with true as its second argument)
 * @param extra {locks, range}
 */
export function Bar({ place, timeline, view, setView, at, setAt, extra = {} }) {
  const frame = useRef(null);
  const canvas = useRef(null);
  const colours = useColours();
  const [pointed, setPointed] = useState(null);
  const [isFocused, setFocused] = useState(false);
  const locks = (extra.locks ?? []).filter((lock) => lock.end > view.begin && lock.begin < view.end);
  useDrawing(canvas, () => drawBar(canvas.current, { ...timeline, view, colours, at, locks, range: extra.range ?? null }));
  useGestures(frame, view, { setView, onClick: (ms) => setAt(ms, true), onPoint: setPointed });
  const width = canvas.current?.clientWidth || 1000;
  const told = pointed ?? (isFocused ? at : null);
  const words = told === null ? null : wordsAt(timeline, told, view, width);
  const share = told === null ? 0 : Math.max(0, Math.min(1, (told - view.begin) / (view.end - view.begin)));
  return html`<div class="past-bar">
    <div class="past-strip" ref=${frame} role="slider" tabindex="0" aria-label=${t.recordings.bar(place.source)}
      aria-valuemin=${Math.round(view.begin / 1000)} aria-valuemax=${Math.round(view.end / 1000)} aria-valuenow=${Math.round(at / 1000)}
      aria-valuetext=${`${scale.fullOf(at)}: ${wordsAt(timeline, at, view, width)}`}
      onFocus=${() => setFocused(true)} onBlur=${() => setFocused(false)}
      onKeyDown=${(event) => onKey(event, { view, setView, at, setAt })}>
      <canvas ref=${canvas} aria-hidden="true"></canvas>
      ${words && html`<p class="past-tip" aria-hidden="true" style=${{ "--share": share }}><b>${scale.timeOf(told)}</b> ${words}</p>`}
    </div>
    <${Listed} place=${place} timeline=${timeline} locks=${locks} setAt=${setAt} />
  </div>`;
}

function onKey(event, { view, setView, at, setAt }) {
  const span = view.end - view.begin;
  const step = (event.shiftKey ? span / 4 : span / 100) * ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (step) {
    const next = Math.min(now(), at + step);
    setAt(next, false);
    setView(event.shiftKey ? scale.moved(view, step) : scale.showing(view, next));
  } else if (event.key === "+" || event.key === "=") setView(scale.zoomed(view, 0.5, at));
  else if (event.key === "-") setView(scale.zoomed(view, 2, at));
  else if (event.key === "Home") setAt(view.begin, false);
  else if (event.key === "End") setAt(Math.min(now(), view.end), false);
  else if (event.key === "Enter") setAt(at, true);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** The same as text: not everybody sees bars. */
function Listed({ place, timeline, locks, setAt }) {
  const [isOpen, setOpen] = useState(false);
  const { rows, events } = timeline;
  return html`<details class="past-list" onToggle=${(event) => setOpen(event.target.open)}>
    <summary>${t.recordings.list}<span class="spoken"> ${place.source}</span></summary>
    ${isOpen && html`<div class="scroll" tabindex="0" role="group" aria-label=${t.recordings.bar(place.source)}>
      <table><thead><tr><th>${t.recordings.from}</th><th>${t.recordings.to}</th><th>${t.recordings.what}</th></tr></thead>
      <tbody>${rows.slice(0, LISTED).map((row) => html`<tr>
        <td><button class="plain" onClick=${() => setAt(row.begin, true)}>${scale.fullOf(row.begin)}</button></td>
        <td>${scale.fullOf(row.end)}</td><td class="wrap">${t.recordings.sayRow(row, false, true)}</td></tr>`)}
        ${locks.map((lock) => html`<tr><td>${scale.fullOf(lock.begin)}</td><td>${scale.fullOf(lock.end)}</td>
          <td class="wrap">${t.recordings.kept(lock)}</td></tr>`)}
      </tbody></table>
      ${rows.length > LISTED && html`<p class="quiet">${t.recordings.more(rows.length - LISTED)}</p>`}
      <p class="quiet">${t.recordings.events(events.length, events.length >= MANY)}</p>
    </div>`}
  </details>`;
}
