// Stored fragments of a source: which there are, of which daemon, store and file, and their bytes by range.
import { at as path } from "../api.js";
import { picturesOf, timescaleOf } from "./mp4.js";
import { ask, pathOf, pieces } from "./requests.js";
import { now, Tiles } from "./tiles.js";

const WIDTH = 60000; // ms of one request: some 60 fragments, and at the newest picture one each second
const HOLE_MS = 250; // between two fragments that is no gap
const BACK_MS = 600000; // where a key picture is looked for
const HEADS = 24; // beginnings of files that are kept

/**
 * @typedef {object} Stored a file, as one daemon has it
 * @property {string} key of the file, among all daemons
 * @property {number} base ns, the session's time at which the file's own times begin
 *
 * @typedef {object} Fragment
 * @property {Stored} file
 * @property {number} begin UTC ms, as is `end`
 * @property {number} pts ns of the session, of its first picture; `duration` likewise
 */

function fragmentOf(columns, file, values) {
  const row = Object.fromEntries(columns.map((name, index) => [name, values[index]]));
  return { ...row, file, key: Boolean(row.key), begin: row.begin / 1e6, end: row.end / 1e6, id: `${file.key}:${row.offset}` };
}

/** The better of two files comes first: of a later owner, then of a later session. */
const order = (a, b) => (b.epoch ?? -1) - (a.epoch ?? -1) || a.place - b.place || b.begin - a.begin;

/**
 * Fragments of several files in their order, without those that another file has at that time. A group of pictures that
 * begins within another file is left out up to its key picture.
 * @param files rows of files with their fragments
 */
export function chained(files) {
  const chosen = [];
  for (const { fragments } of [...files].sort((a, b) => order(a.file, b.file))) {
    const others = chosen.filter((one) => one.file.daemon !== fragments[0].file.daemon || one.file.store !== fragments[0].file.store);
    const free = fragments.filter((one) => !others.some((other) => other.begin < one.end - 1 && one.begin < other.end - 1));
    free.forEach((one, index) => {
      const follows = free[index - 1] && free[index - 1].offset + free[index - 1].size === one.offset;
      const isFirst = one === fragments[0]; // what stands before it is in another tile
      if (one.key || isFirst || (follows && chosen.includes(free[index - 1]))) chosen.push(one);
    });
  }
  return chosen.sort((a, b) => a.begin - b.begin || a.pts - b.pts);
}

export class Fragments {
  /** @param daemons that may have recordings of the source */
  constructor(daemons, source) {
    Object.assign(this, { daemons, source, heads: new Map() });
    this.tiles = new Tiles((begin, width, signal) => this.load(begin, width, signal), { most: 60, freshMs: 700, atOnce: 3 });
  }

  async load(begin, width, signal) {
    const answers = await Promise.all(this.daemons.map((daemon) => pieces(pathOf(daemon, this.source, "fragments"), begin, begin + width, signal, true)));
    const files = new Map();
    answers.forEach((parts, index) => {
      for (const { columns, stores } of parts) {
        stores.forEach(({ store, files: rows }, place) => {
          for (const row of rows) this.note(files, this.daemons[index], store, place, columns, row);
        });
      }
    });
    return chained([...files.values()]);
  }

  note(files, daemon, store, place, columns, row) {
    const { id, session, mime, width, height, turns, head, base_dts: base, is_open: isOpen, epoch = null } = row;
    const key = `${daemon}/${store}/${id}`;
    const file = { key, daemon, store, place, id, session, mime, width, height, turns, head, base, isOpen, epoch, begin: row.begin / 1e6 };
    const found = files.get(key) ?? { file, fragments: [] };
    const known = new Set(found.fragments.map((one) => one.offset));
    for (const values of row.fragments) {
      const fragment = fragmentOf(columns, file, values);
      if (!known.has(fragment.offset)) found.fragments.push(fragment);
    }
    files.set(key, found);
  }

  /** Those of a tile, and of the one before it as far as that reaches into it; undefined while they are not here. */
  list(ms) {
    return this.tiles.get(Math.floor(ms / WIDTH) * WIDTH, WIDTH);
  }

  /**
   * What shows a moment, by what is here already.
   * @returns {Fragment|"gap"|undefined} undefined while that is not known
   */
  peek(ms) {
    const rows = this.list(ms);
    return rows && (covering(rows, ms) ?? "gap");
  }

  /** The fragment that shows a moment; null if none does. */
  async at(ms) {
    return covering(await this.tiles.want(Math.floor(ms / WIDTH) * WIDTH, WIDTH), ms);
  }

  /** The fragment that shows a moment, or the first behind it; null if there is none within a minute. */
  async from(ms) {
    const found = await this.at(ms);
    const first = Math.floor(ms / WIDTH) * WIDTH;
    for (const from of found ? [] : [first, first + WIDTH]) {
      if (from > now()) return null;
      const next = (await this.tiles.want(from, WIDTH)).find((one) => one.begin > ms);
      if (next) return next;
    }
    return found;
  }

  /** Fragments from the key picture before a fragment up to it; null if there is no such key picture. */
  async group(fragment) {
    const found = [fragment];
    for (let from = Math.floor(fragment.begin / WIDTH) * WIDTH; !found[0].key && from > fragment.begin - BACK_MS; from -= WIDTH) {
      const rows = await this.tiles.want(from, WIDTH);
      const before = rows.filter((one) => one.file.key === fragment.file.key && one.offset < found[0].offset);
      while (before.length && !found[0].key) found.unshift(before.pop());
    }
    return found[0].key ? found : null;
  }

  /** The fragment after another one, across files and gaps; null if there is none within a minute. */
  async after(fragment) {
    const first = Math.floor((fragment.end - 1) / WIDTH) * WIDTH;
    for (const from of [first, first + WIDTH]) {
      if (from > now()) return null;
      const rows = await this.tiles.want(from, WIDTH);
      const found = rows.find((one) => follows(one, fragment));
      if (found) return found;
    }
    return null;
  }

  /** The fragment before another one, likewise. */
  async before(fragment) {
    const first = Math.floor(fragment.begin / WIDTH) * WIDTH;
    for (const from of [first, first - WIDTH]) {
      const found = (await this.tiles.want(from, WIDTH)).findLast((one) => follows(fragment, one));
      if (found) return found;
    }
    return null;
  }

  /** The newest picture may be later than what is here. */
  refresh(ms) {
    this.tiles.stale(Math.floor(ms / WIDTH) * WIDTH, WIDTH);
  }

  /** The beginning of a file, for a player: its bytes, and its ticks a second. */
  async head(file, signal) {
    const known = this.heads.get(file.key);
    if (known) {
      this.heads.delete(file.key);
      this.heads.set(file.key, known);
      return known;
    }
    const bytes = await this.bytes(file, ...file.head, signal);
    const found = { bytes, timescale: timescaleOf(bytes) };
    this.heads.set(file.key, found);
    if (this.heads.size > HEADS) this.heads.delete(this.heads.keys().next().value);
    return found;
  }

  /** Bytes of a file; at most 16 MiB are given. */
  async bytes(file, offset, size, signal) {
    const address = `/api/recordings/${path(file.daemon)}/files/${file.id}?store=${encodeURIComponent(file.store)}`;
    const { blob } = await ask(address, signal, { headers: { Range: `bytes=${offset}-${offset + size - 1}` } });
    return new Uint8Array(await blob.arrayBuffer());
  }

  /**
   * Fragments that follow each other in one file, and when their pictures are shown.
   * @returns {{head: Uint8Array, bytes: Uint8Array, pictures: number[][]}} pictures of each, ns of the session
   */
  async media(fragments, signal) {
    const [{ file, offset }, last] = [fragments[0], fragments[fragments.length - 1]];
    const [head, bytes] = await Promise.all([
      this.head(file, signal), this.bytes(file, offset, last.offset + last.size - offset, signal),
    ]);
    const pictures = fragments.map((one) => picturesOf(bytes.subarray(one.offset - offset, one.offset - offset + one.size), head.timescale)
      .map((s) => s * 1e9 + file.base));
    return { head: head.bytes, bytes, pictures };
  }

  close() {
    this.tiles.close();
    this.heads.clear();
  }
}

const follows = (one, fragment) => one.id !== fragment.id && (one.begin > fragment.begin || (one.begin === fragment.begin && one.pts > fragment.pts));

function covering(rows, ms) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].begin <= ms) low = middle + 1;
    else high = middle;
  }
  const found = rows[low - 1];
  if (!found) return null;
  if (ms < found.end) return found;
  return rows[low] && rows[low].begin - found.end < HOLE_MS ? found : null;
}

/** The session's time of a moment within a fragment, ns. */
export const ptsAt = (fragment, ms) => fragment.pts + Math.max(0, Math.min((ms - fragment.begin) * 1e6, fragment.duration - 1));

/** The moment of a picture of a fragment, UTC ms. */
export const momentOf = (fragment, pts) => fragment.begin + (pts - fragment.pts) / 1e6;
