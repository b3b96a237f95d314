// Which detections belong to a shown frame: by pts, on the source's own timeline. A frame without detections was
// dropped by the daemon, or is not analysed yet; the messages around it tell which, and why.

const KEEP_NS = 20e9;
const MAX_FRAMES = 2400;
export const TOLERANCE_NS = 2e6; // containers round to 1/90000 s, mediaTime to microseconds

const AHEAD_S = 0.2;

/**
 * Whether a picture that a playing video tells of is still to come. Firefox does so with one picture in a hundred: it
 * shows that of its clock, and tells one that waits behind it.
 */
export const isToCome = (video, mediaTime) =>
  !video.paused && !video.seeking && mediaTime - video.currentTime > AHEAD_S * Math.max(1, video.playbackRate);

export class FrameLog {
  constructor() {
    this.frames = []; // of one session, in order of pts
    this.session = null;
    this.heardAt = 0; // of the newest, ms
    this.listeners = new Set();
  }

  get newest() {
    return this.frames[this.frames.length - 1] ?? null;
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  add(message) {
    if (message.session !== this.session) {
      this.session = message.session;
      this.frames = [];
    }
    const frames = this.frames;
    if (this.addToOther(message)) return;
    if (message.pts === null || !frames.length || message.pts > this.newest.pts) {
      frames.push(message);
      this.heardAt = performance.now();
    } else frames.splice(this.after(message.pts), 0, message); // several lanes may answer in another order
    const oldest = (this.newest.pts ?? 0) - KEEP_NS;
    let end = Math.max(0, frames.length - MAX_FRAMES);
    while (end < frames.length && frames[end].pts < oldest) end += 1;
    if (end) frames.splice(0, end);
    for (const listener of this.listeners) listener(message);
  }

  /** Add the boxes of one model to those of another that has looked at the same frame; false if none has. */
  addToOther(message) {
    if (message.model?.id === undefined) return false;
    const index = message.pts === null ? this.frames.length - 1 : this.after(message.pts) - 1;
    const other = this.frames[index];
    if (!other || other.seq !== message.seq || other.model?.id === message.model.id) return false;
    const detections = [...named(other), ...named(message)];
    this.frames[index] = { ...other, detections, lastIndex: message.index };
    for (const listener of this.listeners) listener(this.frames[index]);
    return true;
  }

  /**
   * How old a picture is at least, s: one that came after it was heard of so long ago. Recordings have no age.
   */
  olderThan(pts, session) {
    const { newest } = this;
    if (!newest || newest.pts === null || newest.clock.kind === "file" || String(session) !== String(this.session)) return 0;
    return (newest.pts - pts) / 1e9 + (performance.now() - this.heardAt) / 1000;
  }

  /** The index of the first frame with a later pts. */
  after(pts) {
    let low = 0;
    let high = this.frames.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.frames[middle].pts > pts) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  bySeq(seq) {
    for (let index = this.frames.length - 1; index >= 0; index -= 1) {
      if (this.frames[index].seq === seq) return this.frames[index];
    }
    return null;
  }

  /**
   * The detections of the frame with this pts.
   * @returns {{kind: "exact"|"dropped"|"pending"|"unknown", message, before, after, cause}}
   */
  find(pts, session = null) {
    if (session !== null && this.session !== null && String(session) !== String(this.session)) return { kind: "unknown" };
    const index = this.after(pts + TOLERANCE_NS);
    const before = this.frames[index - 1];
    const after = this.frames[index];
    if (before && Math.abs(before.pts - pts) <= TOLERANCE_NS) return { kind: "exact", message: before };
    if (before && after) return { kind: "dropped", before, after, cause: causeBetween(before, after) };
    return { kind: before || !this.frames.length ? "pending" : "unknown", before };
  }
}

/** The boxes of a message, each with the name of its model. */
function named({ model, detections }) {
  return detections.map((found) => ({ model: model?.id, ...found }));
}

/**
 * The cause of most drops between two messages, by their counters; "unheard" if the messages between them did not reach
 * this page; null where nothing tells.
 */
export function causeBetween(before, after) {
  let cause = null;
  let most = 0;
  for (const [name, count] of Object.entries(after.dropped)) {
    const more = count - (before.dropped[name] ?? 0);
    if (more > most) [cause, most] = [name, more];
  }
  return cause ?? (after.index - (before.lastIndex ?? before.index) > 1 ? "unheard" : null);
}

/**
 * The boxes of tracks in a frame that lies between two analysed frames: on the straight way from one to the other.
 * Objects that are in one of them alone have no box.
 */
export function between(before, after, pts) {
  const share = (pts - before.pts) / (after.pts - before.pts);
  const known = new Map(before.detections.filter((d) => d.track_id != null).map((d) => [d.track_id, d]));
  return after.detections
    .filter((d) => known.has(d.track_id))
    .map((d) => ({ ...d, box: d.box.map((end, i) => known.get(d.track_id).box[i] * (1 - share) + end * share) }));
}
