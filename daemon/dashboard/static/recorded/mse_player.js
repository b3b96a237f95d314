// Plays stored fragments of one source as they lie on the disk, by Media Source Extensions. It seeks to the picture of
// a moment, keeps some of what follows in the buffer, and knows which picture is shown.
import { isToCome } from "../frames.js";
import { Appended, shownAt, timeWithin } from "./appended.js";
import { MediaBuffer, plays } from "./buffer.js";
import { batchAfter, groupOf, indexOf } from "./goals.js";

const ORIGIN_MS = 400 * 86400000; // before the first moment that is asked for
const AHEAD_S = { paused: 4, playing: 30, fast: 60 };
const BEHIND_S = 15;
const BEYOND_S = 0.25;
const FAR_S = 75; // what is further ahead was of another seek
const MAX_BYTES = 64 << 20; // in the buffer, ahead and behind
const JOINED_MS = 100;
const QUEUE_MS = 250; // a seek may take so long before a newer one replaces it
const TURN_MS = 250;
const AGAIN_MS = 2000;

export class MsePlayer {
  /**
   * @param fragments see `Fragments`
   * @param on {shown(what, isNew), gap(ms), refused(mime), broken(reason), failed(reason|null)}: shown tells each picture
   *   that is shown; refused and broken that this browser does not play it
   */
  constructor(video, fragments, on) {
    Object.assign(this, { video, fragments, on, media: null, appended: null, file: null, goal: null, next: null, shown: null });
    Object.assign(this, { rate: 0, isNowhere: false, closed: false, wake: () => {}, stop: new AbortController() });
    this.onError = () => this.closed || this.on.broken(video.error?.message ?? "");
    video.addEventListener("error", this.onError);
    video.addEventListener("seeked", () => this.onSeeked());
    this.watch();
    this.run();
  }

  close() {
    this.closed = true;
    this.stop.abort();
    this.wake();
    this.video.removeEventListener("error", this.onError);
    this.media?.close();
    this.appended?.clear();
  }

  /** Show the picture of a moment. */
  seek(ms) {
    this.aim({ ms });
  }

  /** Show the key picture at or before a moment. */
  seekKey(ms) {
    this.aim({ ms, isKey: true });
  }

  /** Show the picture after the shown one (1), or before it (-1). */
  step(direction) {
    if (!this.shown) return;
    const time = this.video.currentTime;
    const there = this.goal ? null : this.appended?.at(time); // it is told a moment after it is shown
    const { piece, index } = there ? shownAt(there, time) : this.shown;
    if (piece.pictures[index + direction] !== undefined) this.aim({ fragment: piece.fragment, index: index + direction });
    else this.aim({ beside: piece.fragment, direction });
  }

  aim(goal) {
    const now = performance.now();
    if (this.goal && now - this.goal.at < QUEUE_MS) {
      this.next = { ...goal, at: now };
      return;
    }
    this.goal = { ...goal, at: now };
    this.next = null;
    this.again();
  }

  /** Abort what is loaded for something else. */
  again() {
    this.stop.abort();
    this.stop = new AbortController();
    this.wake();
  }

  play(rate) {
    this.rate = rate;
    if (this.video.playbackRate !== rate) this.video.playbackRate = rate;
    if (this.video.paused && !this.video.ended) this.video.play().catch(() => {}); // at an end it would begin anew
    this.wake();
  }

  /** Stand still; `rate` says how fast it is to go on. */
  hold() {
    if (!this.video.paused) this.video.pause();
  }

  pause() {
    this.rate = 0;
    this.hold();
  }

  /** Whether pictures of where it stands are there. */
  get isReady() {
    return this.moment !== null && !this.video.seeking && this.video.readyState >= HTMLMediaElement.HAVE_FUTURE_DATA;
  }

  /** Whether it shows what it was told to. */
  get isSettled() {
    return !this.goal && !this.video.seeking;
  }

  /** Whether it stands where nothing is, and goes nowhere. */
  get isLost() {
    return !this.goal && this.moment === null;
  }

  /** The moment that is shown, UTC ms; null while there is none. */
  get moment() {
    // A busy browser plays past the end of what is there, the further the faster.
    const piece = this.appended?.at(this.video.currentTime, BEYOND_S * Math.max(1, this.video.playbackRate));
    if (!piece || this.goal || this.isNowhere) return null;
    if (this.video.ended) return piece.fragment.end;
    return Math.min(piece.fragment.end, piece.fragment.begin + (this.video.currentTime - piece.start) * 1000);
  }

  /** Where the video goes on behind a hole that it stands before, UTC ms; null if it stands before none. */
  get holeEnd() {
    if (this.moment === null || this.video.seeking || this.isReady) return null;
    return this.appended.behindHole(this.video.currentTime);
  }

  // --- what is shown ---------------------------------------------------------------------------------------------

  watch() {
    this.video.requestVideoFrameCallback((_, { mediaTime }) => {
      if (this.closed) return;
      this.tell(isToCome(this.video, mediaTime) ? this.video.currentTime : mediaTime);
      this.watch();
    });
  }

  tell(mediaTime) {
    const piece = this.appended?.at(mediaTime);
    if (!piece) return;
    this.shown = shownAt(piece, mediaTime);
    this.on.shown(this.shown);
  }

  onSeeked() {
    // A seek to the picture that is shown already presents no other.
    const time = this.video.currentTime;
    setTimeout(() => {
      const piece = this.appended?.at(time);
      if (this.closed || !piece || this.video.currentTime !== time) return;
      const { pts } = shownAt(piece, time);
      if (this.shown?.pts !== pts || this.shown.piece.fragment.id !== piece.fragment.id) this.tell(time);
    }, 150);
  }

  // --- what is loaded --------------------------------------------------------------------------------------------

  async run() {
    while (!this.closed) {
      const { signal } = this.stop;
      try {
        const didSome = this.goal ? await this.reach(this.goal, signal) : await this.fill(signal);
        this.on.failed(null);
        if (!didSome) await this.rest(TURN_MS);
      } catch (error) {
        if (this.closed) return;
        if (signal.aborted) continue;
        if (error.status === undefined && error.name !== "AbortError") return this.on.broken(error.message);
        this.on.failed(error.message);
        if (this.next) this.reached(this.goal); // the newer one is tried
        await this.rest(AGAIN_MS);
      }
    }
    return undefined;
  }

  rest(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  reached(goal) {
    if (this.goal !== goal) return;
    this.goal = this.next;
    this.next = null;
    if (this.goal) this.goal.at = performance.now();
  }

  async reach(goal, signal) {
    const group = await groupOf(this.fragments, goal);
    if (signal.aborted || this.closed) return true;
    if (!group) {
      this.isNowhere ||= goal.ms !== undefined; // the picture of another moment stays
      this.reached(goal);
      this.on.gap(goal.ms ?? null);
      return true;
    }
    const fragment = group[group.length - 1];
    if (!plays(fragment.file.mime)) {
      this.on.refused(fragment.file.mime);
      return false;
    }
    await this.prepare(fragment, goal.ms ?? fragment.begin);
    const missing = group.filter((one) => !this.holds(one));
    // What lies between the first and the last of a file comes in one piece.
    if (missing.length) await this.load(group.slice(group.indexOf(missing[0]), group.indexOf(missing[missing.length - 1]) + 1), signal);
    const piece = this.appended.of(fragment);
    const index = indexOf(piece, goal);
    const time = timeWithin(piece, index);
    await this.flush(piece, time);
    if (this.closed) return true;
    if (Math.abs(this.video.currentTime - time) > 0.0001 || !this.shown) this.video.currentTime = time;
    else this.tell(time);
    this.isNowhere = false;
    this.reached(goal);
    return true;
  }

  /** A MediaSource, with the session of a fragment on its timeline. */
  async prepare(fragment, ms) {
    if (!this.media) {
      this.media = new MediaBuffer(this.video);
      this.appended = new Appended(Math.floor(ms / 1000) * 1000 - ORIGIN_MS);
    }
    await this.media.ready;
    if (fragment.begin - this.appended.origin < 1000 || this.appended.offsetOf(fragment) === null) {
      if (fragment.begin - this.appended.origin < 1000) this.appended.origin = Math.floor(fragment.begin / 1000) * 1000 - ORIGIN_MS;
      await this.media.remove(0, Infinity);
      this.appended.clear();
      this.shown = null;
      this.appended.offsetOf(fragment);
    }
  }

  holds(fragment) {
    const piece = this.appended.of(fragment);
    if (piece && this.media.has((piece.start + piece.end) / 2)) return true;
    if (piece) this.appended.drop(fragment.id);
    return false;
  }

  /** Append fragments of one file that lie side by side. */
  async load(fragments, signal) {
    const [{ file }] = fragments;
    const { head, bytes, pictures } = await this.fragments.media(fragments, signal);
    if (signal.aborted || this.closed) return;
    const offset = this.appended.offsets.get(file.session) ?? this.appended.offsetOf(fragments[0]);
    try {
      await this.media.use(file.mime);
      if (this.file !== file.key) await this.media.append(head);
      this.file = file.key;
      await this.media.append(bytes, offset + file.base / 1e9);
    } catch (error) {
      if (error.name !== "QuotaExceededError") throw error;
      await this.media.remove(0, Infinity);
      this.appended.clear();
      return;
    }
    fragments.forEach((one, index) => this.appended.add(one, offset, pictures[index]));
  }

  /** Near the end of what is recorded the decoder is told that no more comes, or it would hold the last pictures back. */
  async flush(piece, time) {
    const next = await this.fragments.after(piece.fragment);
    if (piece.end - time > 1 || (next && next.begin - piece.fragment.end < JOINED_MS && next.file.mime === piece.fragment.file.mime)) return;
    if (this.appended.pieces.some((one) => one.start > piece.start)) {
      await this.media.remove(piece.end, Infinity);
      this.appended.pieces = this.appended.pieces.filter((one) => one.start <= piece.start);
    }
    this.media.finish();
  }

  /** Load some of what follows; returns whether there was something to do. */
  async fill(signal) {
    // Also while it seeks: a decoder may need some of what follows, unless it was told that nothing does.
    if (!this.appended || (this.video.seeking && this.media.isFinished)) return false;
    const time = this.video.currentTime;
    const isTight = this.appended.bytes > MAX_BYTES / 2;
    for (const range of this.appended.trim(time - (isTight ? 1 : BEHIND_S), time + FAR_S)) await this.media.remove(...range);
    const until = time + (this.rate > 1 ? AHEAD_S.fast : AHEAD_S[this.rate ? "playing" : "paused"]);
    let last = this.appended.lastFrom(time);
    while (last && last.end <= until && this.appended.bytes <= MAX_BYTES) {
      const batch = await batchAfter(this.fragments, last, until - last.end);
      if (!batch.length || signal.aborted || !plays(batch[0].file.mime)) return false;
      if (!this.holds(batch[0])) {
        await this.load(batch, signal);
        return true;
      }
      const next = this.appended.lastFrom(this.appended.of(batch[0]).start); // what lies behind a gap is there
      last = next && next.start > last.start ? next : null;
    }
    return false;
  }
}
