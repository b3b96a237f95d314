// The player: pictures of one to four cameras, what moves them, and their bars.
import { at } from "../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { announce, useRemembered } from "../parts.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { Axis, Bar, useTimeline } from "./bar.js";
import { MomentTools, RangeTools, useLocks } from "./keeping.js";
import { Legend } from "./overview.js";
import { PastPicture } from "./picture.js";
import { placeOf } from "./places.js";
import * as scale from "./scale.js";
import { now } from "./tiles.js";
import { RATES, Together } from "./together.js";
import { useAddress, useView, ViewTools } from "./view.js";

const MOST = 4;
const HOUR = 3600000;
const PLAYING_WRITE_MS = 1000;

/** The name of a source in an address, and of its daemon; null for what is none. */
function pairOf(words) {
  try {
    const pair = words.split("/").map(decodeURIComponent);
    return pair.length === 2 ? pair : null;
  } catch {
    return null; // a percent sign that begins nothing
  }
}

/** The cameras beside that of a place. */
function alsoOf(query, place) {
  const isOther = ([daemon, source]) => source !== place.source || !place.daemons.includes(daemon);
  return (query.get("also") ?? "").split(",").map(pairOf).filter((pair) => pair && isOther(pair)).slice(0, MOST - 1);
}

/** A source has another key with other daemons: what plays it is made for those. */
const keyOf = (place) => `${place.daemons.join()} ${place.source}`;

/** The moment of an address; where it says none, the end of what is recorded. */
function momentOf(query, place) {
  const given = Date.parse(query.get("at") ?? "");
  if (Number.isFinite(given)) return Math.min(given, now());
  return Math.min(now(), (place.last ?? now()) - 1000);
}

export function PlayerView({ route, place, places }) {
  const clock = useMemo(() => new Together(momentOf(route.query, place)), []);
  useEffect(() => () => clock.close(), []);
  const state = useStore(clock.state);
  const [view, setView] = useView(route, () => scale.around(clock.at, (Number(route.query.get("zoom")) || 0) * 1000 || HOUR));
  const [also, setAlso] = useState(() => alsoOf(route.query, place));
  const [show, setShow] = useRemembered("recordings.show", { boxes: true, tails: true });
  const [range, setRange] = useState({ from: null, to: null });
  const [locks, reload] = useLocks(place);
  const picture = useRef(null);
  const timeline = useTimeline(place, view);
  const others = useMemo(() => [...new Set(also.map((pair) => placeOf(places, ...pair)).filter(Boolean))], [also, places]);
  useMoment(route, clock, state, also, (ms) => setView(scale.showing(view, ms)));
  useFollowing(state, view, setView);
  const verbs = useVerbs({ clock, timeline, setRange, view, setView });
  useKeys(verbs);
  useEffect(() => {
    if (state.skipped) announce(t.recordings.skipped(state.skipped));
  }, [state.skipped]);
  const options = { boxes: show.boxes, tails: show.tails };
  const choose = (ms) => clock.seek(ms);
  return html`
    <div class="bar"><h1>${place.source} <small>${t.recordings.zone(scale.zoneOf(state.at))}</small></h1>
      <div class="controls">
        ${["boxes", "tails"].map((name) => html`<label class="switch"><input type="checkbox" role="switch" checked=${show[name]}
          onChange=${(event) => setShow({ ...show, [name]: event.target.checked })} /><span>${t.camera[name]}</span></label>`)}
        <a class="button" href=${`/camera/${at(place.daemon, place.source)}`}>${t.recordings.live}</a>
        <a class="button" href="/recordings">${t.recordings.all}</a>
      </div></div>
    <div class="past-stage" data-count=${1 + others.length}>
      <${PastPicture} key=${`first ${keyOf(place)}`} place=${place} clock=${clock} options=${options} handle=${picture} />
      ${others.map((other) => html`<${PastPicture} key=${keyOf(other)} place=${other} clock=${clock} options=${options}
        onRemove=${() => setAlso(also.filter((pair) => placeOf(places, ...pair) !== other))} />`)}
    </div>
    <${Transport} state=${state} clock=${clock} verbs=${verbs} />
    <${ViewTools} view=${view} setView=${setView} at=${state.at} />
    <div class="past-rows">
      <div class="past-head"><span></span><${Axis} view=${view} setView=${setView} /></div>
      <section class="past-row" aria-label=${place.source}><h2>${place.source}</h2>
        <${Bar} place=${place} timeline=${timeline} view=${view} setView=${setView} at=${state.at} setAt=${choose} extra=${{ locks, range }} /></section>
      ${others.map((other) => html`<${OtherRow} key=${keyOf(other)} place=${other} view=${view} setView=${setView} at=${state.at} setAt=${choose} />`)}
    </div>
    ${timeline.failure && html`<p class="warn" role="status">${timeline.failure}</p>`}
    <div class="past-tools">
      <${AddCamera} places=${places} place=${place} also=${also} setAlso=${setAlso} />
      <${MomentTools} place=${place} clock=${clock} picture=${picture} />
    </div>
    <${RangeTools} place=${place} range=${range} setRange=${setRange} locks=${locks} reload=${reload} />
    <${Legend} /><p class="quiet">${t.recordings.keysPlayer}</p>`;
}

function OtherRow({ place, ...more }) {
  const timeline = useTimeline(place, more.view);
  return html`<section class="past-row" aria-label=${place.source}><h2>${place.source}</h2><${Bar} place=${place} timeline=${timeline} ...${more} /></section>`;
}

/** The moment and the cameras in the address; and a link to another moment of the same page. */
function useMoment(route, clock, state, also, show) {
  const write = useAddress();
  const last = useRef(-Infinity);
  useEffect(() => {
    if (state.playing && Math.abs(last.current - state.at) < PLAYING_WRITE_MS) return;
    last.current = state.at;
    write({ at: scale.isoOf(Math.round(state.at)), also: also.map((pair) => pair.map(encodeURIComponent).join("/")).join() });
  }, [state.at, state.playing, also]);
  const first = useRef(route.query);
  useEffect(() => {
    const ms = Date.parse(route.query.get("at") ?? "");
    if (route.query === first.current || !Number.isFinite(ms)) return;
    clock.seek(ms);
    show(ms);
  }, [route.query]);
}

/** While it plays, the bar goes along. */
function useFollowing(state, view, setView) {
  const { at: moment, playing } = state;
  useEffect(() => {
    if (playing && moment > view.end) setView(scale.moved(view, moment - view.end + (view.end - view.begin) * 0.75));
  }, [moment, playing]);
}

function useVerbs({ clock, timeline, setRange, view, setView }) {
  const stop = useRef(null);
  const latest = useRef(null);
  latest.current = view;
  const [said, setSaid] = useState(null); // of a moment, and as long as that is shown
  const say = (words) => setSaid({ words, at: clock.at });
  useEffect(() => () => stop.current?.abort(), []);
  const toEvent = async (direction) => {
    stop.current?.abort();
    const { signal } = (stop.current = new AbortController());
    try {
      const found = await timeline.happened.beside(clock.at, direction, signal);
      if (signal.aborted) return;
      if (!found) return void say(t.recordings.noEvent);
      clock.pause();
      clock.seek(found.ms);
      setView(scale.showing(latest.current, found.ms));
      say(`${scale.timeOf(found.ms)}: ${t.events.say(found.event)}`);
    } catch (error) {
      if (!signal.aborted) say(error.message);
    }
  };
  const mark = (name) => {
    const { at: ms } = clock;
    setRange((before) => {
      const next = { ...before, [name]: ms };
      if (next.from !== null && next.to !== null && next.to <= next.from) next[name === "from" ? "to" : "from"] = null;
      return next;
    });
    announce(t.recordings.marked[name](scale.timeOf(ms)));
  };
  return {
    toggle: () => clock.toggle(),
    step: (direction) => clock.step(direction),
    jump: (s) => clock.seek(clock.at + s * 1000),
    toEvent, mark, said,
    zoom: (factor) => setView(scale.zoomed(view, factor, clock.at)),
  };
}

/** Keys of the whole page; a control that has a meaning for a key keeps it. */
function useKeys(verbs) {
  const latest = useRef(verbs);
  latest.current = verbs;
  useEffect(() => {
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      const control = event.target.closest?.("input, select, textarea, button, a, summary, [role=slider], [tabindex='0']");
      const isText = control?.matches("input:not([type=checkbox]), select, textarea");
      if (isText || (control && [" ", "Enter"].includes(event.key))) return;
      const { toggle, step, jump, toEvent, mark, zoom } = latest.current;
      const keys = {
        " ": toggle, k: toggle, ",": () => step(-1), ".": () => step(1), ArrowLeft: () => step(-1), ArrowRight: () => step(1),
        j: () => jump(-10), l: () => jump(10), p: () => toEvent(-1), n: () => toEvent(1), i: () => mark("from"), o: () => mark("to"),
        "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
      };
      const verb = keys[event.key] ?? keys[event.key.toLowerCase()];
      if (!verb) return;
      event.preventDefault();
      verb();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}

function Transport({ state, clock, verbs }) {
  const said = verbs.said?.at === state.at ? verbs.said.words : null;
  const words = state.waiting ? t.recordings.waiting[state.waiting] : state.skipped ? t.recordings.skipped(state.skipped) : said;
  return html`<div class="past-transport" role="group" aria-label=${t.recordings.transport}>
    <button onClick=${() => verbs.toEvent(-1)}>${t.recordings.eventBefore}</button>
    <button class="icon-only" aria-label=${t.recordings.pictureBefore} title=${t.recordings.pictureBefore} onClick=${() => verbs.step(-1)}>‹</button>
    <button class="primary past-play" aria-pressed=${state.playing} onClick=${verbs.toggle}>${state.playing ? t.recordings.pause : t.recordings.play}</button>
    <button class="icon-only" aria-label=${t.recordings.pictureAfter} title=${t.recordings.pictureAfter} onClick=${() => verbs.step(1)}>›</button>
    <button onClick=${() => verbs.toEvent(1)}>${t.recordings.eventAfter}</button>
    <label class="past-rate"><span>${t.recordings.rate}</span> <select value=${state.rate} onChange=${(event) => clock.setRate(Number(event.target.value))}>
      ${RATES.map((rate) => html`<option value=${rate}>${rate}×</option>`)}</select></label>
    <time class="past-clock" datetime=${scale.isoOf(state.at)}>${scale.dayOf(state.at)}, ${scale.timeOf(state.at)}</time>
    <button onClick=${() => verbs.mark("from")}>${t.recordings.markFrom}</button>
    <button onClick=${() => verbs.mark("to")}>${t.recordings.markTo}</button>
    <span class="quiet" role="status">${words ?? ""}</span>
  </div>`;
}

function AddCamera({ places, place, also, setAlso }) {
  const taken = [placeOf(places, place.daemon, place.source), ...also.map((pair) => placeOf(places, ...pair))];
  const rows = places.filter((one) => !taken.includes(one));
  if (!rows.length || also.length >= MOST - 1) return null;
  const add = (event) => {
    const found = rows.find((one) => `${one.daemon}/${one.source}` === event.target.value);
    if (found) setAlso([...also, [found.daemon, found.source]]);
  };
  return html`<label class="past-add"><span>${t.recordings.add}</span> <select value="" onChange=${add}>
    <option value="">${t.recordings.choose}</option>
    ${rows.map((one) => html`<option value=${`${one.daemon}/${one.source}`}>${one.source}${isAlone(places, one) ? "" : ` (${one.daemon})`}</option>`)}</select></label>`;
}

const isAlone = (places, place) => places.every((one) => one === place || one.source !== place.source);
