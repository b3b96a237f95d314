// A MediaSource with one SourceBuffer, whose steps are promises.

const Source = globalThis.ManagedMediaSource ?? globalThis.MediaSource;
const LONG_S = 1e9; // no seek may be cut off at the end of what is buffered

export const plays = (mime) => Boolean(mime && Source?.isTypeSupported(mime));

const event = (target, good, bad) => new Promise((resolve, reject) => {
  const stop = new AbortController();
  const on = (name, done) => target.addEventListener(name, () => {
    stop.abort();
    done(new Error(`media: ${name}`));
  }, { signal: stop.signal });
  on(good, resolve);
  for (const name of bad) on(name, reject);
});

export class MediaBuffer {
  /** @param video its source is set */
  constructor(video) {
    Object.assign(this, { video, media: new Source(), buffer: null, mime: null, closed: false });
    this.url = URL.createObjectURL(this.media);
    video.disableRemotePlayback = true; // a ManagedMediaSource asks for it
    const opened = event(this.media, "sourceopen", []);
    video.src = this.url;
    this.ready = opened;
  }

  close() {
    this.closed = true;
    URL.revokeObjectURL(this.url);
    this.video.removeAttribute("src");
    this.video.load();
  }

  /** Take video of a type from here on. */
  async use(mime) {
    await this.ready;
    if (!this.buffer) this.buffer = this.media.addSourceBuffer(mime);
    else if (mime !== this.mime) this.buffer.changeType(mime);
    this.mime = mime;
  }

  async append(bytes, offset = null) {
    if (offset !== null && this.buffer.timestampOffset !== offset) this.buffer.timestampOffset = offset;
    const done = event(this.buffer, "updateend", ["error"]);
    this.buffer.appendBuffer(bytes);
    await done;
    if (this.media.readyState === "open" && this.media.duration < LONG_S) this.media.duration = LONG_S;
  }

  async remove(begin, end) {
    if (!this.buffer?.buffered.length) return;
    const done = event(this.buffer, "updateend", ["error"]);
    this.buffer.remove(begin, end === Infinity ? LONG_S : end);
    await done;
  }

  /** There is no more for now: the decoder gives what it holds back. */
  finish() {
    if (this.media.readyState === "open" && !this.buffer?.updating) this.media.endOfStream();
  }

  get isFinished() {
    return this.media.readyState === "ended";
  }

  has(time) {
    const ranges = this.video.buffered;
    for (let index = 0; index < ranges.length; index += 1) {
      if (ranges.start(index) <= time + 0.001 && time < ranges.end(index)) return true;
    }
    return false;
  }
}
