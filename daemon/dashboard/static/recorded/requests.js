// Requests for what was recorded. None is answered with more than a bound: what is too much is asked for in halves.
import { ApiError, at } from "../api.js";
import { t } from "../texts.js";

const LIMIT_MS = 15000;
const MAX_BYTES = 190000;
const LEAST_MS = 100;
const AT_ONCE = 3; // of what may wait: a browser has six connections to a server, and video is to find one free

export const pathOf = (daemon, source, what) => `/api/recordings/${at(daemon, source)}/${what}`;

/** UTC ms to the nanoseconds of an address; digits, because numbers of JavaScript do not hold them. */
export const nsOf = (ms) => `${Math.round(ms)}000000`;

/** The bytes of an answer as they come; null as soon as there are more than may be. `heard` is called with each part. */
async function bodyOf(answer, most, heard) {
  if (Number(answer.headers.get("Content-Length")) > most) return null;
  const reader = answer.body?.getReader();
  const parts = [];
  for (let size = 0; reader;) {
    const { done, value } = await reader.read();
    if (done) break;
    heard();
    size += value.byteLength;
    if (size > most) return null;
    parts.push(value);
  }
  return new Blob(parts, { type: answer.headers.get("Content-Type") ?? "" });
}

async function refusalOf(answer) {
  let content = {};
  try {
    content = await answer.json();
  } catch { /* a body that is not JSON says nothing more */ }
  if (answer.status === 401) document.dispatchEvent(new Event("lookout-signed-out"));
  return Object.assign(new ApiError(content.error ?? t.errors.status(answer.status), answer.status), { content });
}

/**
 * Fetch, with one line for each failure, a body that was cut off among them; an abort by the signal stays an abort.
 * @param options {headers, most, limit}: bytes, and ms without a byte
 * @returns {{blob: Blob, headers: Headers}|null} null for what is larger than may be
 */
export async function ask(path, signal, { headers = {}, most = Infinity, limit = LIMIT_MS } = {}) {
  const stop = new AbortController();
  const leave = () => stop.abort();
  let [timer, isSlow, isRefused] = [0, false, false];
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      isSlow = true;
      leave();
    }, limit);
  };
  signal.addEventListener("abort", leave);
  if (signal.aborted) leave();
  wait();
  try {
    const answer = await fetch(path, { credentials: "same-origin", headers, signal: stop.signal });
    wait();
    isRefused = !answer.ok;
    if (isRefused) throw await refusalOf(answer);
    const blob = await bodyOf(answer, most, wait);
    return blob && { blob, headers: answer.headers };
  } catch (error) {
    if (signal.aborted || isRefused) throw error;
    throw new ApiError(isSlow ? t.errors.slow(limit / 1000) : t.errors.away, 0);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", leave);
    leave(); // what was not read is not wanted
  }
}

let running = 0;
const waiting = [];

/** One of those that may run at once; what it returns ends its turn. */
async function turn(signal) {
  if (running >= AT_ONCE) await new Promise((resolve) => waiting.push(resolve));
  else running += 1;
  const leave = () => (waiting.length ? waiting.shift()() : (running -= 1));
  if (!signal.aborted) return leave;
  leave();
  throw signal.reason;
}

/** The JSON of an answer; null if it is larger than may be. */
async function small(path, signal, most = MAX_BYTES) {
  const answer = await ask(path, signal, { most });
  try {
    return answer && JSON.parse(await answer.blob.text());
  } catch {
    throw new ApiError(t.errors.away, 0);
  }
}

/**
 * The answers for a time, UTC ms, in their order: one, or several where one would be too large. Nothing that was ever
 * recorded of a source is no failure.
 * @param path to which `from` and `to` are added
 * @param isUrgent it does not wait for others
 */
export async function pieces(path, begin, end, signal, isUrgent = false) {
  let answer;
  const leave = isUrgent ? null : await turn(signal);
  try {
    answer = await small(`${path}${path.includes("?") ? "&" : "?"}from=${nsOf(begin)}&to=${nsOf(end)}`, signal);
  } catch (error) {
    if (error.status === 404) return [];
    throw error;
  } finally {
    leave?.();
  }
  const isWhole = answer && answer.stores.every((store) => !store.next);
  if (isWhole || end - begin <= LEAST_MS) return answer ? [answer] : [];
  const middle = Math.round((begin + end) / 2);
  return [...(await pieces(path, begin, middle, signal, isUrgent)), ...(await pieces(path, middle, end, signal, isUrgent))];
}

/** The JSON of an answer that is small by itself. */
export async function json(path, signal) {
  const leave = await turn(signal);
  try {
    return await small(path, signal, Infinity);
  } finally {
    leave();
  }
}
