// Which daemons have recordings of which source. Members of one fleet have the same sources, one after another.
import { get } from "../api.js";
import { daemons, sources } from "../model.js";

const FRESH_MS = 20000;
const known = new Map(); // by daemon: {at, answer}
const last = new Map(); // by daemon: the sources that each of its stores had when it was last asked with success

/** @typedef {{daemon: string, source: string, daemons: string[], first: number|null, last: number|null}} Place
 * the daemon is the one of its address: the owner, or else the first by name; times are UTC ms */

export const withRecordings = () => [...daemons.value.values()].filter((row) => row.recordings).map((row) => row.name).sort();

async function overview(daemon) {
  const found = known.get(daemon);
  if (found && performance.now() - found.at < FRESH_MS) return found.answer;
  const answer = get(`/api/recordings/${encodeURIComponent(daemon)}`);
  known.set(daemon, { at: performance.now(), answer });
  answer.catch(() => known.delete(daemon));
  return answer;
}

/**
 * All sources with recordings.
 * @returns {{places: Place[], failed: {daemon: string, store: string|null, reason: string}[]}}
 */
export async function allPlaces() {
  const names = withRecordings();
  const answers = await Promise.allSettled(names.map(overview));
  const found = new Map();
  const failed = [];
  answers.forEach((answer, index) => {
    const daemon = names[index];
    if (answer.status === "rejected") failed.push({ daemon, store: null, reason: answer.reason.message });
    else last.set(daemon, answer.value.stores.map((store) => ({ ...store, sources: store.sources ?? lastOf(daemon, store.name) })));
    for (const store of answer.value?.stores ?? []) if (store.state !== "up") failed.push({ daemon, store: store.name, reason: store.reason });
    for (const store of last.get(daemon) ?? []) noteStore(found, daemon, store); // what does not answer now is there again soon
  });
  const places = [...found.values()].map((place) => ({ ...place, daemon: ownerOf(place) }));
  return { places: places.sort((a, b) => a.source.localeCompare(b.source) || a.daemon.localeCompare(b.daemon)), failed };
}

const lastOf = (daemon, name) => last.get(daemon)?.find((store) => store.name === name)?.sources;

function noteStore(found, daemon, store) {
  for (const { source, first, last } of store.sources ?? []) {
    const key = `${daemons.value.get(daemon)?.fleet ?? `/${daemon}`} ${source}`;
    const place = found.get(key) ?? { source, daemons: [], first: null, last: null };
    if (!place.daemons.includes(daemon)) place.daemons.push(daemon);
    if (first !== null) place.first = Math.min(place.first ?? Infinity, first / 1e6);
    if (last !== null) place.last = Math.max(place.last ?? 0, last / 1e6);
    found.set(key, place);
  }
}

const ownerOf = (place) => place.daemons.find((daemon) => sources.value.has(`${daemon}/${place.source}`)) ?? place.daemons[0];

/** The place of an address; null if no daemon has recordings of it. */
export function placeOf(places, daemon, source) {
  return places.find((place) => place.source === source && (place.daemon === daemon || place.daemons.includes(daemon))) ?? null;
}
