// What is recorded of a source, and why the rest is not: of all stores of all daemons that have the source, as one.
import { pathOf, pieces } from "./requests.js";
import { now, Tiles, tilesOf } from "./tiles.js";

const MINUTE = 60000;
const WIDTHS = [10 * MINUTE, 60 * MINUTE, 360 * MINUTE, 1440 * MINUTE, 4 * 1440 * MINUTE, 16 * 1440 * MINUTE];
const EXACT = WIDTHS[0];
const ROWS = 2880; // of a tile: shorter ones are merged, they are below a pixel
const LONGEST = 64 * 1440 * MINUTE; // that is looked for recordings, in each direction

/** Causes that say least: where another store or daemon has another one, that is told. */
const QUIET = ["expired", "unread", "off", "no_event", "store_away"];

/** @typedef {{begin: number, end: number, kind: "video"|"claimed"|"gap", cause: string|null, detail: string|null}} Row */

const rank = (row) => (!row ? -2 : row.kind === "claimed" ? 3 : row.kind === "video" ? 2 : QUIET.includes(row.cause) ? -1 : 0);

function rowOf(row) {
  const kind = row.cause ? "gap" : row.claimed ? "claimed" : "video";
  return { begin: row.begin / 1e6, end: row.end / 1e6, kind, cause: row.cause ?? null, detail: row.detail ?? null };
}

/**
 * Several timelines as one: recorded where one of them has video.
 * @param {Row[][]} layers each in order
 */
export function merged(layers) {
  if (layers.length === 1) return layers[0];
  const edges = [...new Set(layers.flat().flatMap((row) => [row.begin, row.end]))].sort((a, b) => a - b);
  const places = layers.map(() => 0);
  const found = [];
  for (let index = 0; index + 1 < edges.length; index += 1) {
    const [begin, end] = [edges[index], edges[index + 1]];
    let best = null;
    layers.forEach((rows, layer) => {
      while (places[layer] < rows.length && rows[places[layer]].end <= begin) places[layer] += 1;
      const row = rows[places[layer]];
      if (row && row.begin <= begin && rank(row) > rank(best)) best = row;
    });
    if (best) push(found, { ...best, begin, end });
  }
  return found;
}

function push(rows, row) {
  const last = rows[rows.length - 1];
  if (last && last.end >= row.begin - 0.001 && last.kind === row.kind && last.cause === row.cause && last.detail === row.detail) last.end = row.end;
  else rows.push(row);
}

/** Rows of which none but those between long ones is shorter than a time: the best of what is merged counts. */
export function thinned(rows, least) {
  const found = [];
  for (const row of rows) {
    const last = found[found.length - 1];
    if (last && last.end - last.begin < least && row.end - row.begin < least) {
      const better = rank(row) > rank(last) ? row : last;
      Object.assign(last, { end: row.end, kind: better.kind, cause: better.cause, detail: better.detail });
    } else push(found, { ...row });
  }
  return found;
}

export class Spans {
  /** @param daemons that may have recordings of the source */
  constructor(daemons, source) {
    Object.assign(this, { daemons, source });
    this.tiles = new Tiles((begin, width, signal) => this.load(begin, width, signal));
  }

  async load(begin, width, signal) {
    const end = Math.min(begin + width, now() + MINUTE);
    if (end <= begin) return [];
    const answers = await Promise.all(this.daemons.map((daemon) => pieces(pathOf(daemon, this.source, "spans"), begin, end, signal)));
    const layers = answers.flatMap((parts) => {
      const stores = new Map();
      for (const part of parts) {
        for (const { store, rows } of part.stores) {
          if (!stores.has(store)) stores.set(store, []);
          for (const row of rows) push(stores.get(store), rowOf(row));
        }
      }
      return [...stores.values()];
    });
    const rows = merged(layers.length ? layers : [[]]);
    return width === EXACT ? rows : thinned(rows, width / ROWS);
  }

  /**
   * What is known of a time by now, for a bar.
   * @returns {{rows: Row[], isWhole: boolean}}
   */
  rows(begin, end) {
    const width = WIDTHS.find((one) => one * 1.5 >= end - begin) ?? WIDTHS[WIDTHS.length - 1];
    const found = [];
    let isWhole = true;
    for (const at of tilesOf(begin, Math.min(end, now()), width)) {
      const rows = this.tiles.get(at, width);
      if (!rows) isWhole = false;
      for (const row of rows ?? []) push(found, { ...row });
    }
    return { rows: found.filter((row) => row.end > begin && row.begin < end), isWhole };
  }

  /** What there is at a moment; null if nothing is known of it. */
  async at(ms) {
    const rows = await this.tiles.want(Math.floor(ms / EXACT) * EXACT, EXACT);
    return rows.find((row) => row.begin <= ms && ms < row.end) ?? null;
  }

  /** The same, if it was loaded already. */
  peek(ms) {
    const rows = this.tiles.get(Math.floor(ms / EXACT) * EXACT, EXACT);
    return rows?.find((row) => row.begin <= ms && ms < row.end) ?? null;
  }

  /** The next moment with video, from a moment on; null if there is none. */
  async next(ms) {
    const width = WIDTHS[3];
    for (let at = Math.floor(ms / width) * width; at < Math.min(now(), ms + LONGEST); at += width) {
      for (const row of await this.tiles.want(at, width)) {
        if (row.kind === "gap" || row.end <= ms + 1) continue;
        const found = await this.exact(Math.max(ms, row.begin), row.end);
        if (found !== null) return found;
      }
    }
    return null;
  }

  /** The end of the video that is the last before a moment; null if there is none. */
  async before(ms) {
    const width = WIDTHS[3];
    for (let at = Math.floor(ms / width) * width; at > ms - LONGEST; at -= width) {
      const row = (await this.tiles.want(at, width)).findLast((one) => one.kind !== "gap" && one.begin < ms);
      if (row) return Math.min(ms, row.end);
    }
    return null;
  }

  /** Where video begins within a thinned row. */
  async exact(ms, end) {
    for (const at of tilesOf(ms, end, EXACT)) {
      const row = (await this.tiles.want(at, EXACT)).find((one) => one.kind !== "gap" && one.end > ms + 1);
      if (row) return Math.max(ms, row.begin);
    }
    return null;
  }

  /** Abort what is asked for outside of a time. */
  keepTo(begin, end) {
    this.tiles.keepTo(begin, end);
  }

  close() {
    this.tiles.close();
  }
}
