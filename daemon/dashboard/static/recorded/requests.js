// Requests for what was recorded. None is answered with more than a bound: what is too much is asked for in halves.
import { ApiError, at } from "../api.js";
import { t } from "../texts.js";

const LIMIT_MS = 15000;
const MAX_BYTES = 190000;
const LEAST_MS = 1000;

export const pathOf = (daemon, source, what) => `/api/recordings/${at(daemon, source)}/${what}`;

/** UTC ms to the nanoseconds of an address; digits, because numbers of JavaScript do not hold them. */
export const nsOf = (ms) => `${Math.round(ms)}000000`;

/** Fetch, with one line for each failure; an abort by the signal stays an abort. */
export async function ask(path, signal, headers = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", headers, signal: AbortSignal.any([signal, AbortSignal.timeout(LIMIT_MS)]) });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError(error.name === "TimeoutError" ? t.errors.slow(LIMIT_MS / 1000) : t.errors.away, 0);
  }
  if (answer.ok) return answer;
  let content = {};
  try {
    content = await answer.json();
  } catch { /* a body that is not JSON says nothing more */ }
  if (answer.status === 401) document.dispatchEvent(new Event("lookout-signed-out"));
  throw Object.assign(new ApiError(content.error ?? content.detail ?? t.errors.status(answer.status), answer.status), { content });
}

/** The JSON of an answer; null if it is larger than may be. */
async function small(path, signal) {
  const stop = new AbortController();
  const answer = await ask(path, AbortSignal.any([signal, stop.signal]));
  const reader = answer.body.getReader();
  const parts = [];
  for (let size = 0; ;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.byteLength;
    if (size > MAX_BYTES) {
      stop.abort();
      return null;
    }
    parts.push(value);
  }
  return JSON.parse(await new Blob(parts).text());
}

/**
 * The answers for a time, UTC ms, in their order: one, or several where one would be too large. Nothing that was ever
 * recorded of a source is no failure.
 * @param path to which `from` and `to` are added
 */
export async function pieces(path, begin, end, signal) {
  let answer;
  try {
    answer = await small(`${path}${path.includes("?") ? "&" : "?"}from=${nsOf(begin)}&to=${nsOf(end)}`, signal);
  } catch (error) {
    if (error.status === 404) return [];
    throw error;
  }
  const isWhole = answer && answer.stores.every((store) => !store.next);
  if (isWhole || end - begin <= LEAST_MS) return answer ? [answer] : [];
  const middle = Math.round((begin + end) / 2);
  return [...(await pieces(path, begin, middle, signal)), ...(await pieces(path, middle, end, signal))];
}

/** The JSON of an answer of any size. */
export const json = async (path, signal) => (await ask(path, signal)).json();
