// Boxes beside the video: those of exactly a recorded picture, by its session and pts; of another stream of the camera
// by the time of day.
import { between, TOLERANCE_NS } from "../frames.js";
import { pathOf, pieces } from "./requests.js";
import { Tiles } from "./tiles.js";

const WIDTH = 5000; // ms of one request
const NEAR_MS = 200; // of another stream: a box that is further away belongs to another picture
const TAIL_MS = 3000;

/** @typedef {{session: string, pts: number, ms: number, image: object, detections: object[], isSame: boolean}} Seen */

function seenOf({ session, same_stream: isSame }, frame) {
  return { session, pts: frame.pts, ms: frame.at / 1e6, image: { width: frame.width, height: frame.height }, detections: frame.boxes, isSame };
}

/** Several models may have looked at one picture. */
function joined(rows) {
  const found = [];
  for (const row of rows) {
    const last = found[found.length - 1];
    if (last && last.session === row.session && last.pts === row.pts && last.ms === row.ms) found[found.length - 1] = { ...last, detections: [...last.detections, ...row.detections] };
    else found.push(row);
  }
  return found;
}

export class Tracks {
  constructor(source) {
    Object.assign(this, { source, places: new Map(), listeners: new Set() });
  }

  tilesOf({ daemon, store }) {
    const key = `${daemon}/${store}`;
    if (!this.places.has(key)) {
      const path = `${pathOf(daemon, this.source, "tracks")}?store=${encodeURIComponent(store)}`;
      const tiles = new Tiles((begin, width, signal) => this.load(path, begin, width, signal), { most: 48, atOnce: 2, freshMs: 1500 });
      tiles.listen(() => this.listeners.forEach((listener) => listener()));
      this.places.set(key, tiles);
    }
    return this.places.get(key);
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  async load(path, begin, width, signal) {
    const answers = await pieces(path, begin, begin + width, signal, true);
    const rows = answers.flatMap((answer) => answer.stores.flatMap(({ files }) => files.flatMap((file) => file.frames.map((frame) => seenOf(file, frame)))));
    return joined(rows.sort((a, b) => a.ms - b.ms || a.pts - b.pts));
  }

  /**
   * The boxes of a shown picture.
   * @param what see `shownAt`
   * @param rate what is played: more is loaded ahead
   * @returns {{kind: "exact"|"between"|"other"|"none"|"pending", detections, image, tail: Seen[]}} other: of another stream
   */
  find(what, rate = 0) {
    const tiles = this.tilesOf(what.file);
    const place = Math.floor(what.ms / WIDTH) * WIDTH;
    const wanted = [place - WIDTH, place, ...(what.ms - place > WIDTH / 2 || rate > 1 ? [place + WIDTH] : [])];
    const lists = wanted.map((begin) => tiles.get(begin, WIDTH));
    const rows = lists.flatMap((list) => list ?? []);
    const near = rows.filter((row) => Math.abs(row.ms - what.ms) < TAIL_MS * 2);
    const same = near.filter((row) => row.isSame && row.session === what.session && row.pts !== null).sort((a, b) => a.pts - b.pts);
    const found = ofPicture(same, what) ?? ofMoment(near.filter((row) => !row.isSame), what);
    if (found) return found;
    return { kind: lists[1] ? "none" : "pending", detections: [], image: null, tail: [] };
  }

  close() {
    this.listeners.clear();
    for (const tiles of this.places.values()) tiles.close();
    this.places.clear();
  }
}

function ofPicture(rows, { pts }) {
  const index = rows.findLastIndex((row) => row.pts <= pts + TOLERANCE_NS);
  const [before, after] = [rows[index], rows[index + 1]];
  const tail = rows.slice(0, index + 1).filter((row) => row.pts > pts - TAIL_MS * 1e6);
  if (before && Math.abs(before.pts - pts) <= TOLERANCE_NS) return { kind: "exact", detections: before.detections, image: before.image, tail };
  if (!before || !after || after.pts - before.pts > 2e9) return null;
  return { kind: "between", detections: between(before, after, pts), image: before.image, tail };
}

function ofMoment(rows, { ms }) {
  const nearest = rows.reduce((best, row) => (!best || Math.abs(row.ms - ms) < Math.abs(best.ms - ms) ? row : best), null);
  if (!nearest || Math.abs(nearest.ms - ms) > NEAR_MS) return rows.length ? { kind: "other", detections: [], image: rows[0].image, tail: [] } : null;
  const tail = rows.filter((row) => row.ms <= ms && row.ms > ms - TAIL_MS).map((row) => ({ ...row, pts: row.ms * 1e6 }));
  return { kind: "other", detections: nearest.detections, image: nearest.image, tail };
}
