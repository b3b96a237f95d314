// The accounts of bridges, asked for now and then, and what is wrong with them.
import { at, get } from "./api.js";
import { utc } from "./clock.js";
import { daemons } from "./model.js";
import { Store } from "./store.js";
import { t } from "./texts.js";

const REFRESH_MS = 10000;
const PATIENCE_S = 60; // away for so long is a trouble; its records wait meanwhile
const DROPPED_S = 600; // so long it is told that records were dropped

/** By the daemon's name: {daemon, report, failure, since, drops: Map of a target to {count, at}}; times are UTC, s. */
export const bridges = new Store(new Map());

export const droppedOf = (target) => Object.values(target.dropped).reduce((sum, n) => sum + n, 0);

/** When the number of dropped records of each target last grew, as far as this tab has seen it; `at` is null before. */
export function dropsOf(before, report, now) {
  const rows = report.targets.map((target) => {
    const [known, count] = [before?.get(target.name), droppedOf(target)];
    return [target.name, { count, at: known && count > known.count ? now : (known?.at ?? null) }];
  });
  return new Map(rows);
}

/** @returns {{daemon, report, failure, since, drops}} what is known after an answer, or after a failure. */
export function noted(before, daemon, { report = null, failure = null }, now) {
  if (report) return { daemon, report, failure: null, since: null, drops: dropsOf(before?.drops, report, now) };
  return { daemon, report: before?.report ?? null, failure, since: before?.since ?? now, drops: before?.drops ?? new Map() };
}

/** What is wrong, as `troublesOf` has it. */
export function bridgeTroubles({ daemon, report, failure, since, drops }, now) {
  const found = [];
  const add = (key, title, words, more = {}) => found.push({ key: `bridge ${daemon}/${key}`, title, words, href: "/bridge", ...more });
  if (failure && now - since > PATIENCE_S) add("", t.bridge.of(daemon), t.inWords(failure), { since });
  if (failure || !report) return found;
  if (report.spool.failure) add("spool", t.bridge.of(daemon), t.bridge.notKept(t.inWords(report.spool.failure)));
  for (const target of report.targets) {
    const [title, from, dropped] = [t.bridge.target(target.name, daemon), target.since / 1e9, drops.get(target.name)?.at ?? null];
    const isOff = target.state === "gone" || target.state === "off";
    if (isOff || (target.state !== "up" && now - from > PATIENCE_S)) {
      const retryAt = target.retry_in_s === null || isOff ? null : report.at / 1e9 + target.retry_in_s;
      add(target.name, title, t.troubles.state(t.bridge.states[target.state] ?? target.state, t.inWords(target.reason)), { since: from, retryAt });
    } else if (dropped !== null && now - dropped < DROPPED_S) add(target.name, title, t.bridge.drops, { since: dropped });
  }
  return found;
}

/** Ask the bridges of all daemons that have one. */
export async function askBridges() {
  const names = [...daemons.value.values()].filter((row) => row.bridge && row.state !== "away").map((row) => row.name);
  const rows = await Promise.all(names.map(async (name) => {
    const told = await get(`/api/bridge/${at(name)}`).then((report) => ({ report }), (error) => ({ failure: error.message }));
    return [name, noted(bridges.value.get(name), name, told, utc())];
  }));
  if (rows.length || bridges.value.size) bridges.set(new Map(rows));
}

/** Begin to follow them; called once, when the session may view. */
export function followBridges() {
  let asking = false;
  const ask = async () => {
    if (document.hidden || asking) return;
    asking = true;
    await askBridges().finally(() => (asking = false));
  };
  let known = "";
  daemons.listen((rows) => {
    const names = [...rows.values()].filter((row) => row.bridge).map((row) => row.name).join("\n");
    if (names !== known) ask(); // at once, when a daemon is first known
    known = names;
  });
  setInterval(ask, REFRESH_MS);
}
