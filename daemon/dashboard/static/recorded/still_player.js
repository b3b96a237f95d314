// Stills of the past, where this browser does not play the video: the same verbs as those of the player of video.
import { momentOf, ptsAt } from "./fragments.js";
import { ask, nsOf, pathOf } from "./requests.js";

const WIDTH = 1280;
const AGAIN_MS = 2000;

export class StillPlayer {
  /**
   * @param image an element
   * @param fragments of the source; they tell which pictures there are
   * @param on {shown, gap, failed} as those of `MsePlayer`
   */
  constructor(image, fragments, on) {
    Object.assign(this, { image, fragments, on, goal: null, next: null, shown: null, stop: new AbortController(), url: null, closed: false });
  }

  close() {
    this.closed = true;
    this.stop.abort();
    if (this.url) URL.revokeObjectURL(this.url);
    this.image.removeAttribute("src");
  }

  seek(ms) {
    this.aim({ ms });
  }

  seekKey(ms) {
    this.aim({ ms });
  }

  step(direction) {
    if (!this.shown) return;
    const { piece, index } = this.shown;
    if (piece.pictures[index + direction] !== undefined) this.aim({ fragment: piece.fragment, index: index + direction });
    else this.aim({ beside: piece.fragment, direction });
  }

  /** A still that is under way is waited for, and the newest goal comes next. */
  aim(goal) {
    if (this.goal) this.next = goal;
    else this.show(goal);
  }

  play() {}
  hold() {}
  pause() {}

  get isReady() {
    return this.isSettled;
  }

  get isSettled() {
    return !this.goal;
  }

  /** Stills follow the clock, and do not lead it. */
  get moment() {
    return null;
  }

  async show(goal) {
    this.goal = goal;
    try {
      const what = await this.find(goal);
      if (this.closed) return;
      if (what) await this.load(what);
      else this.on.gap(goal.ms ?? null);
      this.on.failed(null);
    } catch (error) {
      if (this.closed) return;
      this.on.failed(error.message);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
    if (this.closed) return;
    this.goal = null;
    const { next } = this;
    this.next = null;
    if (next) this.show(next);
  }

  /** The picture of a goal: its fragment, with the times of its pictures. */
  async find(goal) {
    const { fragments } = this;
    let fragment = goal.fragment ?? null;
    if (goal.beside) fragment = await (goal.direction > 0 ? fragments.after(goal.beside) : fragments.before(goal.beside));
    else if (!fragment) fragment = await fragments.at(goal.ms);
    if (!fragment) return null;
    const { pictures: [pictures] } = await fragments.media([fragment], this.stop.signal);
    const piece = { fragment, pictures };
    if (goal.beside) return { piece, index: goal.direction > 0 ? 0 : pictures.length - 1 };
    if (goal.index !== undefined) return { piece, index: goal.index };
    return { piece, index: Math.max(0, pictures.findLastIndex((one) => one <= ptsAt(fragment, goal.ms) + 1e6)) };
  }

  async load({ piece, index }) {
    const { fragment, pictures } = piece;
    const { file } = fragment;
    const ms = momentOf(fragment, pictures[index]);
    const wanted = Math.min(fragment.end - 1, Math.max(fragment.begin, ms) + 1);
    const path = `${pathOf(file.daemon, this.fragments.source, "still")}?at=${nsOf(wanted)}&width=${WIDTH}&store=${encodeURIComponent(file.store)}`;
    const { blob } = await ask(path, this.stop.signal);
    const url = URL.createObjectURL(blob);
    this.image.src = url;
    await this.image.decode().catch(() => {});
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = url;
    this.shown = { piece, index, pts: pictures[index], ms, session: file.session, file, mediaTime: null };
    if (!this.closed) this.on.shown(this.shown);
  }
}
