// One camera: its picture as live as it can be, and why it is as it is.
import { at, get } from "../api.js";
import { utc } from "../clock.js";
import { feed } from "../feed.js";
import * as format from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { Neighbours, Tools } from "../camera/tools.js";
import { useZoom } from "../camera/zoom.js";
import { counts, events, frameLog, keyOf, loaded, metrics, missed, movedTo, sources } from "../model.js";
import { announce, Empty, Facts, State, useNow, useRemembered } from "../parts.js";
import { Picture } from "../picture.js";
import { go } from "../router.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { Times } from "../troubles.js";
import { EventRow } from "../event_row.js";

const STAGES = ["decode", "wait", "preprocess", "infer", "postprocess", "total"];
const DAY_S = 86400;
const MOST_STATES = 8; // at first
const WINDOW = 300; // frames that the latencies are of

export default function Camera({ route }) {
  const [daemon, id] = route.parts;
  const row = useStore(sources).get(keyOf(daemon, id));
  const moved = row ? null : movedTo(daemon, id);
  useEffect(() => moved && go(`/camera/${at(moved.daemon, id)}`, { replace: true }), [moved?.daemon]);
  if (!row) {
    return html`<h1>${id}</h1>${loaded.value && html`<${Empty} title=${t.camera.missing(daemon, id)} />`}`;
  }
  return html`<${View} row=${row} />`;
}

function View({ row }) {
  const stage = useRef(null);
  const frame = useRef(null);
  const zoom = useZoom(frame);
  const [show, setShow] = useRemembered("camera.show", { boxes: true, tails: true, rules: true });
  const picture = useRef(null);
  const phase = useRef("connecting");
  const [live, setLive] = useState({ phase: "connecting", reason: null });
  const [shown, watchFrames] = useFrameState();
  const options = useMemo(
    () => ({ tails: show.tails, rules: show.rules ? row.rules : [], hidden: !show.boxes, zoom: zoom.zoom.k > 1 ? zoom.zoom : null }),
    [show, row.rules, zoom.zoom],
  );
  const onLive = (next) => {
    if (next.phase !== phase.current) announce(`${t.live.phases[next.phase]}. ${next.reason ?? ""}`);
    phase.current = next.phase;
    setLive(next);
  };
  return html`
    <div class="bar">
      <h1><${Neighbours} row=${row} />${row.id} <${State} state=${row.state} reason=${row.reason} /></h1>
      <div class="controls">
        ${["boxes", "tails", "rules"].map((name) => html`<label class="switch">
          <input type="checkbox" role="switch" checked=${show[name]}
            onChange=${(event) => setShow({ ...show, [name]: event.target.checked })} /><span>${t.camera[name]}</span></label>`)}
        <${Tools} ...${{ row, picture, zoom, stage }} isVideo=${["playing", "late"].includes(live.phase)} />
      </div>
    </div>
    ${row.state !== "up" && row.reason && html`<p class="notice notice-warning">${t.inWords(row.reason)} ${row.trouble && html`<${Times} ...${row.trouble} state=${row.state} />`}</p>`}
    <div class="camera">
      <div class="stage" ref=${stage}>
        <div ref=${frame} class=${zoom.zoom.k > 1 ? "zoom is-zoomed" : "zoom"} tabindex="0" role="group" aria-label=${t.cameraTools.picture(row.id)}>
          <div ref=${watchFrames}><${Picture} row=${row} live=${true} options=${options} onState=${onLive} handle=${picture} /></div></div>
        <p class="stage-line"><${LiveLine} live=${live} /><span class=${`frame-${shown.kind}`} data-cause=${shown.cause ?? null}>${wordsOf(shown)}</span></p>
      </div>
      <aside class="figures"><${Figures} row=${row} age=${() => picture.current?.age() ?? null} /></aside>
      <${States} row=${row} />
      <${Latest} row=${row} />
    </div>`;
}

function LiveLine({ live }) {
  const words = live.phase === "waiting" ? t.live.waitingFor(t.inWords(live.reason) ?? "") : live.reason;
  return html`<span class=${`phase phase-${live.phase}`}>${t.live.phases[live.phase]}</span>
    ${words && html`<span class="quiet">${words}</span>`}`;
}

/** What is known of the shown frame, at most a few times a second: nobody reads faster. A drop is kept for a while. */
function useFrameState() {
  const [state, setState] = useState({ kind: "none" });
  const last = useRef({ at: 0, kind: "none", answered: 0 });
  const clean = useRef(null);
  const watch = useMemo(() => (element) => {
    clean.current?.();
    if (!element) return;
    const onFrame = ({ detail }) => {
      const now = performance.now();
      const { kind, cause } = detail;
      const { at: before, kind: old, answered } = last.current;
      if (kind === "pending" && now - answered < 1000) return; // detections are a moment later than some frames
      if (kind !== "pending") last.current.answered = now;
      if (kind === old ? now - before < 1000 : now - before < (old === "dropped" ? 900 : 250)) return;
      Object.assign(last.current, { at: now, kind });
      setState({ kind, cause });
    };
    element.addEventListener("lookout-frame", onFrame);
    clean.current = () => element.removeEventListener("lookout-frame", onFrame);
  }, []);
  return [state, watch];
}

function wordsOf({ kind, cause }) {
  if (kind === "exact") return t.camera.analysedFrame;
  if (kind === "dropped") return t.camera.dropped(t.causes[cause] ?? t.camera.dropUnknown);
  return { pending: t.camera.pending, unknown: t.camera.unknown }[kind] ?? "";
}

/** Percentiles of each stage over the latest frames, ms. */
function latencies(frames) {
  const recent = frames.slice(-WINDOW);
  return STAGES.map((stage) => {
    const values = recent.map((frame) => frame.latency[stage] / 1e6).sort((a, b) => a - b);
    const pick = (share) => (values.length ? values[Math.min(values.length - 1, Math.floor(share * values.length))] : null);
    return { stage, median: pick(0.5), p95: pick(0.95) };
  });
}

/** Whether the detector misses frames that it was to see: those above a limit that somebody has set are none. */
function isLosing(row, published, captured) {
  const { rate_limit: limited = 0 } = row.drops ?? {};
  return published < (captured - limited / 60) * 0.95;
}

function Figures({ row, age }) {
  useNow(1000);
  useEffect(() => feed.want({ metrics: true }), []);
  const measured = useStore(metrics).get(row.daemon)?.sources[row.id];
  const occupancy = useStore(counts).get(keyOf(row.daemon, row.id))?.occupancy ?? [];
  const log = frameLog(row.daemon, row.id);
  const newest = log.newest;
  const stages = latencies(log.frames);
  const most = Math.max(1, ...stages.map(({ p95 }) => p95 ?? 0));
  const dropped = Object.entries(newest?.dropped ?? measured?.dropped ?? {}).filter(([, n]) => n);
  const { captured_fps: captured, analysed_fps: published } = row; // of a frame that several models see, once
  return html`
    <section><h2>${t.camera.figures}</h2>
      ${captured > 0 && isLosing(row, published, captured) && html`<p class="warn">${t.camera.analysed(format.fps(published), format.fps(captured))}</p>`}
      <${Facts} rows=${[
        [t.camera.captured, `${format.fps(captured)} /s`],
        [t.camera.published, `${format.fps(published)} /s`],
        [t.camera.objectsNow, format.count(newest?.detections.length)],
        [t.camera.age, format.seconds(age())],
        [t.camera.size, row.width ? `${row.width} × ${row.height}` : format.DASH],
        [t.camera.codec, row.codec ?? format.DASH],
        [t.camera.tracked, row.tracking || newest?.detections.some((found) => found.track_id != null) ? t.camera.on : t.camera.off],
        ...occupancy.filter((one) => one.rule !== null).map((one) => [`${one.rule}${one.label ? `, ${one.label}` : ""}`, one.count]),
        [t.camera.daemon, row.daemon],
      ]} />
      ${row.notes?.map((note) => html`<p class="hint" key=${note}>${note}</p>`)}</section>
    <section><h2>${t.camera.stages}</h2>
      ${newest ? html`<table class="bars"><thead><tr><th>${t.camera.stage}</th><th>${t.camera.median}</th><th>${t.camera.p95}</th></tr></thead>
        <tbody>${stages.map(({ stage, median, p95 }) => html`<tr class=${stage === "total" ? "sum" : ""}>
          <th scope="row">${t.camera.stageNames[stage]}<i class="bar-line" style=${{ "--share": (median ?? 0) / most }}></i></th>
          <td>${format.ms(median)}</td><td>${format.ms(p95)}</td></tr>`)}</tbody></table>`
        : html`<p class="quiet">${t.camera.waitingFigures}</p>`}</section>
    <section><h2>${t.camera.drops}</h2>
      ${dropped.length ? html`<table><thead><tr><th>${t.camera.cause}</th><th>${t.camera.since}</th><th>${t.camera.perMinute}</th></tr></thead>
        <tbody>${dropped.map(([cause, n]) => html`<tr><th scope="row">${t.causes[cause] ?? cause}</th><td>${format.count(n)}</td>
          <td>${format.count(row.drops?.[cause] ?? 0)}</td></tr>`)}</tbody></table>`
        : html`<p class="quiet">${t.camera.noDrops}</p>`}</section>`;
}

/** The states of the last day, as far as the page's server has heard of them. */
function useStates(row) {
  const [rows, setRows] = useState([]);
  const again = useStore(missed);
  useEffect(() => {
    let current = true;
    get(`/api/sources/${at(row.daemon, row.id)}/states`).then((found) => current && setRows(found), () => {});
    return () => (current = false);
  }, [row.daemon, row.id, row.state, row.reason, again]);
  return rows;
}

/** States as a strip, and as a table. */
function States({ row }) {
  useNow(5000);
  const [all, setAll] = useState(false);
  const now = utc();
  const rows = useStates(row);
  const from = Math.max(now - DAY_S, rows[0]?.at ?? now);
  const span = Math.max(0.001, now - from);
  const parts = rows.map((entry, index) => ({ ...entry, until: rows[index + 1]?.at ?? now })).filter((entry) => entry.until > from);
  return html`<section class="states"><h2>${t.camera.states} ${parts.length > 0 && html`<small>${t.camera.statesSince(format.momentOf(from, now))}</small>`}</h2>
    <div class="strip" aria-hidden="true">${parts.map((entry) => html`<i class=${`state-${entry.state}`}
      style=${{ "--share": Math.max(0.001, (entry.until - Math.max(from, entry.at)) / span) }}></i>`)}</div>
    <table><thead><tr><th>${t.camera.time}</th><th>${t.camera.state}</th><th>${t.camera.reason}</th></tr></thead>
      <tbody>${[...parts].reverse().slice(0, all ? parts.length : MOST_STATES).map((entry) => html`<tr>
        <td><time datetime=${format.isoOf(entry.at)} title=${format.dateOf(entry.at)}>${format.momentOf(entry.at, now)}</time></td>
        <td><${State} state=${entry.state} /></td><td class="wrap">${t.inWords(entry.reason) ?? ""}</td></tr>`)}</tbody></table>
    ${!all && parts.length > MOST_STATES && html`<button onClick=${() => setAll(true)}>${t.cameraTools.allStates(parts.length)}</button>`}</section>`;
}

function Latest({ row }) {
  const [older, setOlder] = useState([]);
  const again = useStore(missed);
  useEffect(() => {
    get(`/api/events?daemon=${encodeURIComponent(row.daemon)}&source=${encodeURIComponent(row.id)}&limit=20`)
      .then((found) => setOlder(found.events))
      .catch(() => {});
  }, [row.daemon, row.id, again]);
  const fresh = useStore(events).filter((event) => event.daemon === row.daemon && event.source === row.id);
  const known = new Set(fresh.map((event) => event.id));
  const rows = [...fresh, ...older.filter((event) => !known.has(event.id))].sort((a, b) => b.at - a.at).slice(0, 12);
  return html`<section class="latest"><h2>${t.camera.events}</h2>
    ${rows.length ? html`<ul class="event-list">${rows.map((event) => html`<${EventRow} key=${event.id} event=${event} />`)}</ul>` : html`<p class="quiet">${t.camera.noEvents}</p>`}
    <a href=${`/events?daemon=${encodeURIComponent(row.daemon)}&source=${encodeURIComponent(row.id)}`}>${t.camera.allEvents}</a></section>`;
}
