// What is known of times, in tiles of one width: loaded when it is first wanted, kept while there is room. Tiles that
// reach to the present are loaded again, because more comes. Loads that nobody wants any more are aborted.
import { utc } from "../clock.js";

const AGAIN_MS = 5000; // after a failure
const SETTLES_MS = 45000; // what is older than this does not change soon

export const now = () => utc() * 1000;

export class Tiles {
  /**
   * @param load (begin, width, signal) => promise; times are UTC ms
   * @param most tiles that are kept
   * @param freshMs how old a tile may be that reaches to the present
   */
  constructor(load, { most = 96, freshMs = 4000, atOnce = 4 } = {}) {
    Object.assign(this, { load, most, freshMs, atOnce, tiles: new Map(), waiting: [], running: 0, listeners: new Set() });
    this.failure = null;
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  close() {
    this.listeners.clear();
    for (const tile of this.tiles.values()) tile.stop?.abort();
    this.tiles.clear();
    this.waiting = [];
  }

  /** What is known of a tile now; undefined while nothing is. It is loaded if that is due. */
  get(begin, width) {
    const tile = this.touch(begin, width);
    if (this.isDue(tile)) this.start(tile).catch(() => {});
    return tile.data;
  }

  /** As `get`, when it is there. */
  async want(begin, width) {
    const tile = this.touch(begin, width);
    if (this.isDue(tile) && tile.data === undefined) await this.start(tile);
    else if (this.isDue(tile)) await this.start(tile).catch(() => {});
    else if (tile.data === undefined) await (tile.loading ?? Promise.reject(tile.failure));
    return tile.data;
  }

  /** Forget when a tile was loaded: it is loaded again when it is wanted. */
  stale(begin, width) {
    const tile = this.tiles.get(`${width}/${begin}`);
    if (tile) tile.at = -Infinity;
  }

  /** There is more of a moment: what has it is loaded again. Tiles that reach to the present are in any case. */
  outdate(ms) {
    const due = [...this.tiles.values()].filter((tile) => !tile.isOpen && tile.begin <= ms && ms < tile.begin + tile.width);
    for (const tile of due) tile.at = -Infinity;
    if (due.length) this.tell();
  }

  /** Abort loads, and those that wait, of tiles outside of a time. */
  keepTo(begin, end) {
    for (const [key, tile] of this.tiles) {
      if (!tile.loading || (tile.begin < end && tile.begin + tile.width > begin)) continue;
      tile.stop.abort();
      if (tile.data === undefined) this.tiles.delete(key);
    }
  }

  touch(begin, width) {
    const key = `${width}/${begin}`;
    const tile = this.tiles.get(key) ?? { key, begin, width, data: undefined, at: -Infinity, loading: null, failure: null };
    this.tiles.delete(key);
    this.tiles.set(key, tile); // the latest is the last
    if (this.tiles.size > this.most) {
      const [oldest, other] = this.tiles.entries().next().value;
      other.stop?.abort();
      this.tiles.delete(oldest);
    }
    return tile;
  }

  isDue(tile) {
    if (tile.loading) return false;
    const age = performance.now() - tile.at;
    if (tile.failure) return age > AGAIN_MS;
    if (tile.at === -Infinity) return true;
    return tile.isOpen && age > this.freshMs;
  }

  start(tile) {
    tile.stop = new AbortController();
    tile.loading = this.run(tile).finally(() => (tile.loading = null));
    return tile.loading;
  }

  async run(tile) {
    const { signal } = tile.stop;
    if (this.running >= this.atOnce) {
      await new Promise((resolve, reject) => {
        const entry = { resolve };
        this.waiting.push(entry);
        signal.addEventListener("abort", () => {
          this.waiting = this.waiting.filter((one) => one !== entry);
          reject(signal.reason);
        });
      });
    }
    this.running += 1;
    try {
      const isOpen = tile.begin + tile.width > now() - SETTLES_MS;
      const data = await this.load(tile.begin, tile.width, signal);
      if (signal.aborted) return;
      Object.assign(tile, { data, isOpen, at: performance.now(), failure: null });
      this.failure = null;
    } catch (error) {
      if (signal.aborted) throw error;
      Object.assign(tile, { failure: error, at: performance.now() });
      this.failure = error.message;
      throw error;
    } finally {
      this.running -= 1;
      this.waiting.shift()?.resolve();
      if (!signal.aborted) this.tell();
    }
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

/** Tiles of a width that cover a time. */
export function tilesOf(begin, end, width) {
  const found = [];
  for (let at = Math.floor(begin / width) * width; at < end; at += width) found.push(at);
  return found;
}
