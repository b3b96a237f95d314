// All that the pages know of daemons, sources and events: first from requests, then from the feed.
import { get } from "./api.js";
import { tellTime, utc } from "./clock.js";
import { feed } from "./feed.js";
import { FrameLog } from "./frames.js";
import { Store } from "./store.js";

const REFRESH_MS = 5000;
const MAX_EVENTS = 300;
const MAX_GAPS = 20;
export const SLOW_S = 60; // so long it is told

export const session = new Store(null); // {role, login, version}
export const daemons = new Store(new Map());
export const sources = new Store(new Map()); // by "daemon/source"
export const events = new Store([]); // newest first
export const metrics = new Store(new Map()); // the latest message of each daemon
export const counts = new Store(new Map());
export const slow = new Store([]); // what this browser or its link was too slow for: {messages, at}; UTC, s
export const missed = new Store(0); // how often messages did not come: what was loaded before is not all
export const gaps = new Store([]); // {daemon, from, until}: no message came, of a daemon or, if null, of any; UTC, s
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
  sources.set(new Map(found.map((row) => [keyOf(row.daemon, row.id), completed(row)])));
  loaded.set(true);
}

const sizeOf = ({ width, height, pixel_aspect = 1 }) => ({ width, height, pixel_aspect });

/** With what messages tell, and a request does not. */
function completed(row) {
  const key = keyOf(row.daemon, row.id);
  const before = sources.value.get(key);
  if (row.counts) counts.value.set(key, row.counts);
  const isBusy = row.counts?.occupancy.some((one) => one.count > 0);
  const { newest } = frameLog(row.daemon, row.id);
  const size = newest && newest.session === row.session ? sizeOf(newest.image) : null;
  return { ...row, ...size, activeAt: isBusy ? Date.now() / 1000 : (before?.activeAt ?? 0) };
}

/** The source itself, where another member of its fleet has it now; null if there is none. */
export function movedTo(daemon, id) {
  const fleet = daemons.value.get(daemon)?.fleet;
  if (!fleet) return null;
  return [...sources.value.values()].find((row) => row.id === id && row.daemon !== daemon && daemons.value.get(row.daemon)?.fleet === fleet) ?? null;
}

function onStatus({ daemon, message, trouble = null }) {
  const key = keyOf(daemon, message.source);
  const row = sources.value.get(key);
  if (!row) return again();
  const { state, reason, format, session } = message;
  Object.assign(row, { state, reason, session, trouble: row.enabled === false ? null : trouble });
  if (format) Object.assign(row, { width: format.width, height: format.height, pixel_aspect: format.pixel_aspect, codec: format.codec });
  if (format && row.live === null) again();
  sources.touch();
}

function onEvent({ daemon, message }) {
  const event = { ...message, daemon, has_snapshot: Boolean(message.snapshot), seen: null };
  if (events.value.some((row) => row.id === event.id)) return;
  events.set([event, ...events.value].slice(0, MAX_EVENTS));
  noteActivity(daemon, message.source);
}

function onDetections({ daemon, message }) {
  frameLog(daemon, message.source).add(message);
  const row = sources.value.get(keyOf(daemon, message.source));
  const size = sizeOf(message.image);
  if (row && Object.keys(size).some((name) => row[name] !== size[name])) {
    Object.assign(row, size); // a camera may change it while it is connected
    sources.touch();
  }
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

function onDaemon({ kind: _, ...entry }) {
  const before = daemons.value.get(entry.name);
  daemons.set(new Map(daemons.value).set(entry.name, { ...before, ...entry }));
  if (before?.instance !== entry.instance || before?.state !== entry.state) again();
  if (before?.state === "away" && entry.state === "up") noteGap(entry.name, before.since);
}

/** No message came for a while: what was loaded before must be loaded again, and some is in no journal. */
function noteGap(daemon, from) {
  gaps.set([...gaps.value, { daemon, from, until: utc() }].slice(-MAX_GAPS));
  missed.update((n) => n + 1);
  again();
}

let closedAt = null; // since when the feed is cut off, UTC, s

function onClosed() {
  closedAt ??= utc() - (performance.now() - feed.heardAt) / 1000;
}

function onOpen() {
  if (closedAt === null) return again();
  noteGap(null, closedAt);
  closedAt = null;
  return undefined;
}

/** Begin to follow; called once, when the session may view. */
export function follow() {
  feed.on("open", onOpen);
  feed.on("closed", onClosed);
  feed.on("tick", ({ at }) => tellTime(at));
  feed.on("missed", ({ daemon }) => noteGap(daemon, utc()));
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
  feed.on("skipped", ({ messages, lost }) => {
    slow.update((rows) => [...rows.filter((row) => row.at > utc() - SLOW_S), { messages, at: utc() }]);
    if (lost) noteGap(null, utc());
  });
  again();
  setInterval(() => document.hidden || again(), REFRESH_MS);
  feed.start();
}
