// All that the pages know of daemons, sources and events: first from requests, then from the feed.
import { get } from "./api.js";
import { feed } from "./feed.js";
import { FrameLog } from "./frames.js";
import { Store } from "./store.js";

const REFRESH_MS = 5000;
const MAX_EVENTS = 300;
const MAX_STATES = 100;

export const session = new Store(null); // {role, login, version}
export const daemons = new Store(new Map());
export const sources = new Store(new Map()); // by "daemon/source"
export const events = new Store([]); // newest first
export const metrics = new Store(new Map()); // the latest message of each daemon
export const counts = new Store(new Map());
export const skipped = new Store(0);
export const loaded = new Store(false);
const logs = new Map();

export const keyOf = (daemon, source) => `${daemon}/${source}`;
export const mayChange = () => session.value?.role === "operate";

/** The detections of one source that have come lately. */
export function frameLog(daemon, source) {
  const key = keyOf(daemon, source);
  if (!logs.has(key)) logs.set(key, new FrameLog());
  return logs.get(key);
}

export async function loadSession() {
  session.set(await get("/api/session"));
  return session.value;
}

export async function refresh() {
  const [rows, found] = await Promise.all([get("/api/daemons"), get("/api/sources")]);
  daemons.set(new Map(rows.map((row) => [row.name, row])));
  sources.set(new Map(found.map((row) => [keyOf(row.daemon, row.id), withStates(row)])));
  loaded.set(true);
}

/** Keep the states that were seen, which a request does not tell. */
function withStates(row) {
  const before = sources.value.get(keyOf(row.daemon, row.id));
  const states = row.states ?? before?.states ?? [{ at: Date.now() / 1000, state: row.state, reason: row.reason }];
  if (row.counts) counts.value.set(keyOf(row.daemon, row.id), row.counts);
  const isBusy = row.counts?.occupancy.some((one) => one.count > 0);
  return { ...row, states, activeAt: isBusy ? Date.now() / 1000 : (before?.activeAt ?? 0) };
}

function onStatus({ daemon, message }) {
  const key = keyOf(daemon, message.source);
  const row = sources.value.get(key);
  if (!row) return again();
  const { state, reason, format } = message;
  const last = row.states[row.states.length - 1];
  if (!last || last.state !== state || last.reason !== reason) {
    row.states = [...row.states, { at: message.at / 1e9, state, reason }].slice(-MAX_STATES);
  }
  Object.assign(row, { state, reason }, format && { width: format.width, height: format.height, codec: format.codec });
  sources.touch();
}

function onEvent({ daemon, message, has_snapshot: hasSnapshot }) {
  const event = { ...message, daemon, has_snapshot: hasSnapshot ?? Boolean(message.snapshot) };
  if (events.value.some((row) => row.id === event.id)) return;
  events.set([event, ...events.value].slice(0, MAX_EVENTS));
  noteActivity(daemon, message.source);
}

function onDetections({ daemon, message }) {
  frameLog(daemon, message.source).add(message);
  if (message.detections.length) noteActivity(daemon, message.source);
}

function noteActivity(daemon, source) {
  const row = sources.value.get(keyOf(daemon, source));
  if (row) row.activeAt = Date.now() / 1000;
}

function onDrops({ daemon, source, per_minute: drops, captured_fps, analysed_fps }) {
  const row = sources.value.get(keyOf(daemon, source));
  if (!row) return;
  Object.assign(row, { drops, captured_fps, analysed_fps });
  sources.touch();
}

const again = () => void refresh().catch((error) => error.status === 0 && feed.suspect());

function onDaemon(message) {
  const { kind: _, ...entry } = message.message ?? message.daemon ?? message;
  const before = daemons.value.get(entry.name);
  daemons.set(new Map(daemons.value).set(entry.name, { ...before, ...entry }));
  if (before?.instance !== entry.instance || before?.state !== entry.state) again();
}

/** Begin to follow; called once, when the session may view. */
export function follow() {
  feed.on("open", again);
  feed.on("status", onStatus);
  feed.on("event", onEvent);
  feed.on("detections", onDetections);
  feed.on("daemon", onDaemon);
  feed.on("drops", onDrops);
  feed.on("sources", again);
  feed.on("counts", ({ daemon, message }) => {
    counts.value.set(keyOf(daemon, message.source), message);
    if (message.occupancy.some((one) => one.count > 0)) noteActivity(daemon, message.source);
    counts.touch();
  });
  feed.on("metrics", ({ daemon, message }) => {
    metrics.value.set(daemon, message);
    metrics.touch();
  });
  feed.on("skipped", ({ messages }) => {
    skipped.update((n) => n + (messages ?? 1));
    again();
  });
  again();
  setInterval(() => document.hidden || again(), REFRESH_MS);
  feed.start();
}
