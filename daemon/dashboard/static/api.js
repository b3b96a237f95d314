// Requests to the page's own server. Every failure becomes one line that can be shown.
import { t } from "./texts.js";

const LIMIT_MS = 15000;
const CHANGE_LIMIT_MS = 70000; // a change may wait for a model

export class ApiError extends Error {
  constructor(message, status, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function request(path, options = {}, limit = LIMIT_MS) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options, signal: options.signal ?? AbortSignal.timeout(limit) });
  } catch (error) {
    throw new ApiError(error.name === "TimeoutError" ? t.errors.slow(limit / 1000) : t.errors.away, 0);
  }
  if (answer.ok || answer.status === 304) return answer;
  const retryAfter = Number(answer.headers.get("Retry-After")) || null;
  let line = t.errors.status(answer.status);
  try {
    line = (await answer.json()).error ?? line;
  } catch { /* a body that is not JSON says nothing more */ }
  if (answer.status === 401) document.dispatchEvent(new Event("lookout-signed-out"));
  throw new ApiError(line, answer.status, retryAfter);
}

export const at = (...parts) => parts.map(encodeURIComponent).join("/");

export async function get(path, limit) {
  return (await request(path, {}, limit)).json();
}

/** Send a change; returns the answer's JSON, or null where there is none. */
export async function send(method, path, content) {
  return (await sendIf(method, path, content)).content;
}

/**
 * Send a change for a state of things alone: that with this tag, or any.
 * @returns {{content, tag}} the answer's JSON, or null, and the tag of the new state
 */
export async function sendIf(method, path, content, tag = null) {
  const options = { method, headers: { "Content-Type": "application/json", ...(tag && { "If-Match": tag }) } };
  if (content !== undefined) options.body = JSON.stringify(content);
  const answer = await request(path, options, CHANGE_LIMIT_MS);
  const text = await answer.text();
  return { content: text ? JSON.parse(text) : null, tag: answer.headers.get("ETag") };
}

/**
 * Ask something that is answered by lines of JSON as they are found.
 * @yields lists of them
 */
export async function* lines(path, content, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content), signal };
  const reader = (await request(path, options)).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    yield whole.filter(Boolean).map((line) => JSON.parse(line));
  }
}

/**
 * The newest picture of a source.
 * @returns {{blob, seq, pts}}
 */
export async function still(daemon, source) {
  const answer = await request(`/api/still/${at(daemon, source)}`, { cache: "no-cache" });
  const header = (name) => answer.headers.get(name);
  return {
    blob: await answer.blob(),
    seq: Number(header("X-Seq")),
    pts: Number(header("X-Pts")),
  };
}
