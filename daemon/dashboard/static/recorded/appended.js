// The fragments that a SourceBuffer holds, and where on its timeline: a session's times plus an offset of its own, so
// that a second of media is a second of the day, but for the drift between the camera's clock and the day's.
import { momentOf } from "./fragments.js";

const DRIFT_S = 0.15; // beyond it a session gets another offset, and all is loaded again
const MOST_OVERLAP_S = 30; // of two sessions, after hours of drift
const SESSIONS = 64;
const SLACK_S = 4; // so that not each fragment removes another

/**
 * @typedef {object} Piece a fragment in the buffer
 * @property {number} offset s: media time is this plus the session's time
 * @property {number} start media time, s, as is `end`
 * @property {number[]} pictures ns of the session, in order
 */

export class Appended {
  /** @param origin UTC ms at which media time begins */
  constructor(origin) {
    Object.assign(this, { origin, pieces: [], offsets: new Map() });
  }

  clear() {
    this.pieces = [];
    this.offsets.clear();
  }

  /**
   * The offset of a fragment's session, s.
   * @returns {number|null} null: it has drifted, and all that is in the buffer has to go first, by `clear`
   */
  offsetOf(fragment) {
    const { session } = fragment.file;
    const wanted = (fragment.begin - this.origin) / 1000 - fragment.pts / 1e9;
    const known = this.offsets.get(session);
    if (known !== undefined) return Math.abs(known - wanted) <= DRIFT_S ? known : null;
    if (this.offsets.size >= SESSIONS) this.forget();
    const start = wanted + fragment.pts / 1e9;
    const before = this.pieces.findLast((piece) => piece.start < start);
    const overlap = before ? before.end - start : 0;
    const offset = overlap > 0 && overlap < MOST_OVERLAP_S ? wanted + overlap : wanted;
    this.offsets.set(session, offset);
    return offset;
  }

  /** Of sessions that are not in the buffer. */
  forget() {
    const held = new Set(this.pieces.map((piece) => piece.fragment.file.session));
    for (const session of this.offsets.keys()) if (!held.has(session)) this.offsets.delete(session);
  }

  add(fragment, offset, pictures) {
    const start = offset + fragment.pts / 1e9;
    this.drop(fragment.id);
    this.pieces.push({ fragment, offset, pictures, start, end: start + fragment.duration / 1e9 });
    this.pieces.sort((a, b) => a.start - b.start);
  }

  drop(id) {
    this.pieces = this.pieces.filter((piece) => piece.fragment.id !== id);
  }

  of(fragment) {
    return this.pieces.find((piece) => piece.fragment.id === fragment.id) ?? null;
  }

  /** The piece of a media time, or the one that ends so many seconds before it; null if there is none. */
  at(time, beyond = 0.25) {
    const piece = this.pieces.findLast((one) => one.start <= time + 0.001);
    return piece && time < piece.end + beyond ? piece : null;
  }

  /** The last of the pieces that follow each other from a media time on. */
  lastFrom(time) {
    let last = this.at(time);
    for (const piece of this.pieces) {
      if (last && piece.start > last.start && piece.start - last.end < 0.1) last = piece;
    }
    return last;
  }

  /** UTC ms at which the video goes on, where one of the last pictures before a hole is shown; null elsewhere. */
  behindHole(time) {
    const piece = this.at(time);
    const next = piece && this.pieces.find((one) => one.start > piece.start);
    if (!next || next.start <= piece.end + 0.001) return null;
    return shownAt(piece, time).index >= piece.pictures.length - 2 ? next.fragment.begin : null; // a busy browser stands early
  }

  get bytes() {
    return this.pieces.reduce((sum, piece) => sum + piece.fragment.size, 0);
  }

  /** Keep what begins within some media time; returns the ranges that go, at key pictures. */
  trim(begin, end) {
    const first = this.pieces.findLast((piece) => piece.start <= begin && piece.fragment.key);
    const last = this.pieces.find((piece) => piece.start >= end && piece.fragment.key);
    const ranges = [];
    if (first && this.pieces[0].start < Math.min(first.start, begin - SLACK_S)) ranges.push([0, first.start]);
    if (last) ranges.push([last.start, Infinity]);
    this.pieces = this.pieces.filter((piece) => !ranges.some(([from, to]) => from <= piece.start && piece.start < to));
    return ranges;
  }
}

/** The picture of a piece that is shown at a time of its session, by its number; the first, if none is so early. */
export function pictureAt(piece, pts) {
  const index = piece.pictures.findLastIndex((one) => one <= pts + 1e6);
  return Math.max(0, index);
}

/** What is shown at a media time. */
export function shownAt(piece, mediaTime) {
  const { fragment, offset, pictures } = piece;
  const index = pictureAt(piece, (mediaTime - offset) * 1e9);
  const pts = pictures[index];
  return { piece, index, pts, mediaTime, ms: momentOf(fragment, pts), session: fragment.file.session, file: fragment.file };
}

/** A media time within a picture's time, so that no rounding leads to its neighbour. */
export function timeWithin(piece, index) {
  const { pictures, offset, end } = piece;
  const begin = offset + pictures[index] / 1e9;
  const next = index + 1 < pictures.length ? offset + pictures[index + 1] / 1e9 : end;
  return begin + Math.max(0.0005, Math.min(0.01, (next - begin) / 2));
}
