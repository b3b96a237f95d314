// The video and the picture of an event: where they are, and why they may not be there.
import { at, get, send } from "../api.js";
import { daemons, keyOf, sources } from "../model.js";
import { t } from "../texts.js";
import { isYoung } from "./list.js";

const AROUND_NS = 5e9; // kept before and behind a card whose event wants a time that nobody knows
const HEVC = 'video/mp4; codecs="hvc1.1.6.L93.B0"';
const THUMB = 240; // pixels of a picture that is 120 wide on the screen

const recordings = (event, rest) => `/api/recordings/${at(event.daemon, event.source)}/${rest}`;

/** Why there is no video of an event; null if there may be. */
export function whyNoClip(event) {
  if (!event.clip) return t.review.clip.none;
  if (!daemons.value.get(event.daemon)?.recordings) return t.review.clip.noPlayer;
  const codec = sources.value.get(keyOf(event.daemon, event.source))?.codec;
  return codec === "hevc" && !document.createElement("video").canPlayType(HEVC) ? t.review.clip.codec : null;
}

export const clipOf = (event) => recordings(event, `clip.mp4?event=${encodeURIComponent(event.id)}`);
export const hasClip = (event) => Boolean(event.clip && daemons.value.get(event.daemon)?.recordings);

/** The page of recordings at the moment of an event. */
export const momentOf = (event) =>
  `/recordings/${at(event.daemon, event.source)}?at=${encodeURIComponent(new Date(event.at / 1e6).toISOString())}`;

/** A small picture of where it happened; null if there is none. */
export function thumbOf(event) {
  if (event.has_snapshot) {
    const box = event.box ? `&box=${event.box.join(",")}` : "";
    return `/api/events/${at(event.daemon, event.id)}/snapshot?width=${THUMB}${box}`;
  }
  // A time is a number of more digits than one has here: a millisecond later is surely not the picture before.
  return hasClip(event) ? recordings(event, `still?at=${event.confirmed_at + 1e6}&width=320`) : null;
}

/** Ask for the clip alone to learn why it did not play. */
async function look(event) {
  const gone = new AbortController();
  const limit = AbortSignal.any ? AbortSignal.any([gone.signal, AbortSignal.timeout(10000)]) : gone.signal;
  try {
    const answer = await fetch(clipOf(event), { credentials: "same-origin", signal: limit });
    const error = answer.ok ? null : await answer.json().then((body) => body.error, () => t.errors.status(answer.status));
    return { status: answer.status, error };
  } catch {
    return { status: 0, error: t.errors.away };
  } finally {
    gone.abort();
  }
}

export async function whyNotPlayed(event) {
  const { status, error } = await look(event);
  if (status === 404 && isYoung(event)) return t.review.clip.notReady;
  return error ?? t.review.clip.broken;
}

/** Lock the time that an event wants, which may be still to come; or, where no recorder knows it, that around its card. */
async function lock(event, card) {
  const order = (time) => send("POST", recordings(event, "locks"), { ...time, reason: t.review.lockReason(event.id) });
  try {
    return await order({ event: event.id });
  } catch (error) {
    if (error.status !== 404) throw error;
    return order({ from: card.begin - AROUND_NS, to: card.end + AROUND_NS });
  }
}

/**
 * Keep the video of an event.
 * @returns {{from, to, locks}} UTC ns, and the paths of the locks
 */
export async function keep(event, card) {
  const rows = (await lock(event, card)).locks.map((row) => row.lock);
  const locks = rows.map((row) => `/api/recordings/${at(event.daemon)}/locks/${at(row.id)}`);
  return { from: rows[0].begin, to: rows[0].end, locks };
}

export const release = (paths) => Promise.all(paths.map((path) => send("DELETE", path)));

export const find = (daemon, id) => get(`/api/events/${at(daemon, id)}`);
