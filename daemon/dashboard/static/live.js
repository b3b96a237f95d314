// Live video: fragments of MP4 from a WebSocket into Media Source Extensions. It keeps to the live edge, knows how old
// the shown picture is, closes while the tab is hidden, and connects again by itself.
import { Clock } from "./clock.js";
import { isToCome } from "./frames.js";
import { t } from "./texts.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
const KEEP_S = 8; // behind what is shown
const EDGE_S = 0.3; // from here on it plays faster, the more the later it is
const JUMP_S = 1.5; // from here on it jumps
const FASTEST = 1.5;
const TURN_MS = 250;
const SAY_MS = 500; // between two reports of what has come,
const SAY_BYTES = 32768; // unless this much has
const SILENT_MS = 8000; // the server answers more often, however little a camera sends
const ASK_MS = 2000; // between two questions for the server's time
const EAGER = 20; // messages that are answered at once, so that the server learns soon what this link carries
const LATE_S = 2; // an older picture is not called live
const TOLD_MS = 10000; // so long is said that pictures were left out
const HEADER = 8; // bytes: when the newest picture of a message came to the server, ms

// iPhones have a ManagedMediaSource alone.
const Source = globalThis.ManagedMediaSource ?? globalThis.MediaSource;
const address = (path) => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;

/**
 * @typedef {{phase: "connecting"|"waiting"|"playing"|"late"|"still"|"lost"|"ended", reason: string|null,
 *   age: number|null}} LiveState age is in whole seconds, and told while the picture is late
 */

export class LivePlayer {
  /**
   * @param video a muted element
   * @param path of the WebSocket
   * @param on {state(LiveState), frame(pts, session, mediaTime), turns(n), older(pts, session)}: frame is called for each
   *   frame that is shown, with its media time as well; older tells how old a picture is at least, s, by other messages
   */
  constructor(video, path, on) {
    Object.assign(this, { video, path, on, socket: null, closed: false, tries: 0, timer: 0, init: null, shown: null });
    this.state = { phase: null, reason: null, age: null };
    this.onVisible = () => (this.isUnseen() ? this.disconnect() : this.connect());
    document.addEventListener("visibilitychange", this.onVisible);
    video.addEventListener("leavepictureinpicture", this.onVisible);
    this.keeper = setInterval(() => this.turn(), TURN_MS);
    if (!this.isUnseen()) this.connect();
  }

  /** A hidden tab shows nothing, unless its video is beside all tabs. */
  isUnseen() {
    return document.hidden && document.pictureInPictureElement !== this.video;
  }

  close() {
    this.closed = true;
    clearInterval(this.keeper);
    document.removeEventListener("visibilitychange", this.onVisible);
    this.video.removeEventListener("leavepictureinpicture", this.onVisible);
    this.disconnect();
  }

  tell(phase, reason = null, age = null) {
    const before = this.state;
    if (before.phase === phase && before.reason === reason && before.age === age) return;
    this.state = { phase, reason, age };
    this.on.state(this.state);
  }

  connect() {
    if (this.closed || this.final || this.socket) return;
    clearTimeout(this.timer);
    if (!this.tries) this.tell("connecting");
    const socket = new WebSocket(address(this.path));
    socket.binaryType = "arraybuffer";
    const now = performance.now();
    Object.assign(this, { socket, heardAt: now, clock: new Clock(), got: 0, bytes: 0, said: 0, saidAt: now, askedAt: -ASK_MS });
    socket.onopen = () => this.say(true);
    socket.onmessage = ({ data }) => {
      this.heardAt = performance.now();
      this.got += 1;
      this.bytes += data.byteLength ?? data.length;
      if (typeof data === "string") this.control(JSON.parse(data));
      else this.take(data);
      if (this.got <= EAGER) this.say(true);
    };
    socket.onclose = () => {
      if (this.socket === socket) this.retry();
    };
  }

  /** Tell the server what has come, if that is due: it sends no more than comes. Now and then, ask it for the time. */
  say(isDue) {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const now = performance.now();
    const asks = now - this.askedAt >= ASK_MS;
    const tells = this.got > this.said && (isDue || this.bytes >= SAY_BYTES || now - this.saidAt >= SAY_MS);
    if (!asks && !tells) return;
    Object.assign(this, { said: this.got, saidAt: now, bytes: 0, askedAt: asks ? now : this.askedAt });
    this.socket.send(JSON.stringify({ got: this.got, at: asks ? now : null }));
  }

  disconnect() {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.dropMedia();
  }

  retry(reason = t.live.lost) {
    this.disconnect();
    if (this.closed || this.final) return;
    this.tell("lost", reason);
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.tries, 8));
    this.tries += 1;
    this.timer = setTimeout(() => this.isUnseen() || this.connect(), wait * (0.75 + Math.random() / 2));
  }

  control(message) {
    if (message.kind === "clock") this.clock.note(message.at, message.now);
    else if (message.kind === "waiting") this.wait(message.reason);
    else if (message.kind === "init") this.begin(message);
    else if (message.kind === "skipped") Object.assign(this, { skipped: message.frames, skippedAt: performance.now() });
    else if (message.kind === "ended") this.end(message.reason);
    else if (message.kind === "jpeg") this.showStills(message.reason);
  }

  /** Show stills instead, until there are packets. */
  showStills(reason) {
    this.dropMedia();
    this.tell("still", reason);
  }

  /** Show stills for good: the browser cannot play what comes. */
  giveUp(reason) {
    this.final = true;
    this.tell("still", reason);
    this.disconnect();
  }

  /** The last frame stays until a new one comes. */
  wait(reason) {
    this.started = false;
    this.tell("waiting", reason);
  }

  end(reason) {
    this.dropMedia();
    this.tell("ended", reason);
  }

  begin(message) {
    if (!Source?.isTypeSupported(message.mime)) return this.giveUp(t.live.noCodec(message.mime));
    this.dropMedia();
    this.on.turns(message.turns ?? 0);
    const media = new Source();
    const beginning = { data: Uint8Array.from(atob(message.segment), (letter) => letter.charCodeAt(0)), at: null };
    Object.assign(this, { media, init: message, queue: [beginning], buffer: null, newest: null, steps: [], tries: 0 });
    media.addEventListener("sourceopen", () => {
      if (this.media !== media) return;
      this.buffer = media.addSourceBuffer(message.mime);
      this.buffer.addEventListener("updateend", () => {
        const ranges = this.buffer?.buffered;
        if (this.appended && ranges?.length) this.newest = { at: this.appended, end: ranges.end(ranges.length - 1) };
        if (!this.started) this.keepToEdge(0); // all pictures since the last key picture come at once
        this.pump();
      });
      this.buffer.addEventListener("error", () => this.retry());
      this.pump();
    });
    this.video.disableRemotePlayback = true; // a ManagedMediaSource asks for it
    this.url = URL.createObjectURL(media);
    this.video.src = this.url;
    this.watchFrames(media);
  }

  dropMedia() {
    if (!this.media) return;
    URL.revokeObjectURL(this.url);
    this.video.removeAttribute("src");
    this.video.load();
    Object.assign(this, { media: null, buffer: null, queue: [], init: null, shown: null, newest: null, started: false });
  }

  take(message) {
    if (!this.media) return;
    this.queue.push({ data: new Uint8Array(message, HEADER), at: new DataView(message).getFloat64(0) });
    this.pump();
  }

  pump() {
    const { buffer, queue, media } = this;
    if (!buffer || buffer.updating || media.readyState !== "open") return;
    const old = buffer.buffered.length ? this.video.currentTime - KEEP_S : 0;
    try {
      if (old > buffer.buffered.start(0) + KEEP_S) return buffer.remove(0, old);
    } catch { /* nothing is buffered yet */ }
    if (!queue.length) return;
    const parts = queue.splice(0, queue.length);
    try {
      buffer.appendBuffer(parts.length === 1 ? parts[0].data : joined(parts.map((part) => part.data)));
      this.appended = parts[parts.length - 1].at;
    } catch (error) {
      if (error.name !== "QuotaExceededError") return this.retry();
      queue.unshift(...parts);
      buffer.remove(0, Math.max(0.1, this.video.currentTime - 1));
    }
    if (this.video.paused) this.video.play().catch(() => {});
  }

  turn() {
    this.say(false);
    if (this.socket && performance.now() - this.heardAt > SILENT_MS) return this.retry(t.live.silent);
    this.keepToEdge();
    this.judge();
    return undefined;
  }

  /** Play what is newest: faster if a little late, by a jump if later, or over a gap. */
  keepToEdge(jump = JUMP_S) {
    const { video } = this;
    const ranges = video.buffered;
    if (!this.media || !ranges.length) return;
    const [start, end] = [ranges.start(ranges.length - 1), ranges.end(ranges.length - 1)];
    const behind = end - video.currentTime;
    if (video.currentTime < start || behind > jump) video.currentTime = Math.max(start, end - 0.05);
    video.playbackRate = Math.min(FASTEST, 1 + Math.max(0, behind - EDGE_S));
  }

  /** Seconds since the shown picture was new at the server; null while there is none, or nobody knows. */
  age() {
    const [now, { shown, newest }] = [this.clock?.now() ?? null, this];
    if (shown === null || newest === null || now === null) return null;
    const own = (now - newest.at) / 1000 + Math.max(0, newest.end - shown.time);
    return Math.max(0, own, this.on.older(shown.pts, this.init.session));
  }

  /** Seconds between two pictures, one at most; a camera that sends few of them may be live as well. */
  gap() {
    return this.steps.length ? Math.min(1, ...this.steps) : 0;
  }

  /** Whether what is shown may be called live. */
  judge() {
    if (!this.started) return;
    const age = this.age();
    const told = this.skipped && performance.now() - this.skippedAt < TOLD_MS ? t.live.skipped(this.skipped) : null;
    if (age === null) this.tell("connecting");
    else if (age > LATE_S + 2 * this.gap()) this.tell("late", t.live.old(Math.floor(age)), Math.floor(age));
    else this.tell("playing", told);
  }

  watchFrames(media) {
    const { video, init } = this;
    const shown = (_, { mediaTime }) => {
      if (this.media !== media) return;
      video.requestVideoFrameCallback(shown);
      if (this.started && isToCome(video, mediaTime)) return;
      const pts = init.base_pts + Math.round(mediaTime * 1e9);
      if (this.shown && mediaTime > this.shown.time) this.steps = [...this.steps.slice(-7), mediaTime - this.shown.time];
      this.shown = { time: mediaTime, pts };
      if (!this.started) {
        this.started = true;
        this.judge();
      }
      this.on.frame(pts, init.session ?? null, mediaTime);
    };
    this.started = false;
    video.requestVideoFrameCallback(shown);
  }
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.byteLength, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(new Uint8Array(part), at);
    at += part.byteLength;
  }
  return whole;
}
