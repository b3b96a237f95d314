// Live video: fragments of MP4 from a WebSocket into Media Source Extensions. It keeps to the live edge, closes while
// the tab is hidden, and connects again by itself.
import { t } from "./texts.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
const KEEP_S = 8; // behind what is shown
const EDGE_S = 0.3; // from here on it plays faster, the more the later it is
const JUMP_S = 1.5; // from here on it jumps
const FASTEST = 1.5;
const SILENT_MS = 15000; // the server tells when a camera has nothing to send
const CANDIDATES = ["avc1.640028", "hvc1.1.6.L120.90", "hev1.1.6.L120.90", "av01.0.08M.08", "vp09.00.40.08"];

// iPhones have a ManagedMediaSource alone.
const Source = globalThis.ManagedMediaSource ?? globalThis.MediaSource;
const plays = (codec) => Boolean(Source?.isTypeSupported(`video/mp4; codecs="${codec}"`));
const address = (path) => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;

/** @typedef {{phase: "connecting"|"waiting"|"playing"|"still"|"lost"|"ended", reason: string|null}} LiveState */

export class LivePlayer {
  /**
   * @param video a muted element
   * @param path of the WebSocket
   * @param on {state(LiveState), frame(pts, session, mediaTime), turns(n)}: frame is called for each frame that is
   *   shown, with its media time as well
   */
  constructor(video, path, on) {
    Object.assign(this, { video, path, on, socket: null, closed: false, tries: 0, timer: 0, init: null });
    this.onVisible = () => (document.hidden ? this.disconnect() : this.connect());
    document.addEventListener("visibilitychange", this.onVisible);
    this.keeper = setInterval(() => this.keepToEdge(), 250);
    if (!document.hidden) this.connect();
  }

  close() {
    this.closed = true;
    clearInterval(this.keeper);
    document.removeEventListener("visibilitychange", this.onVisible);
    this.disconnect();
  }

  tell(phase, reason = null) {
    this.on.state({ phase, reason });
  }

  connect() {
    if (this.closed || this.final || this.socket) return;
    clearTimeout(this.timer);
    this.tell("connecting");
    const socket = new WebSocket(address(this.path));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(JSON.stringify({ codecs: CANDIDATES.filter(plays) }));
    socket.onmessage = ({ data }) => {
      this.heardAt = performance.now();
      if (typeof data === "string") this.control(JSON.parse(data));
      else this.take(data);
    };
    socket.onclose = () => {
      if (this.socket === socket) this.retry();
    };
    this.socket = socket;
  }

  disconnect() {
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.dropMedia();
  }

  retry() {
    this.disconnect();
    if (this.closed || this.final) return;
    this.tell("lost", t.live.lost);
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.tries, 8));
    this.tries += 1;
    this.timer = setTimeout(() => document.hidden || this.connect(), wait * (0.75 + Math.random() / 2));
  }

  control(message) {
    if (message.kind === "waiting") this.wait(message.reason);
    else if (message.kind === "init") this.begin(message);
    else if (message.kind === "skipped") this.tell("playing", t.live.skipped(message.frames));
    else if (message.kind === "jpeg") this.showStills(message.reason);
    else if (message.kind === "ended") this.end(message.reason);
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
    Object.assign(this, { media, init: message, queue: [], buffer: null, tries: 0 });
    media.addEventListener("sourceopen", () => {
      if (this.media !== media) return;
      this.buffer = media.addSourceBuffer(message.mime);
      this.buffer.addEventListener("updateend", () => {
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
    Object.assign(this, { media: null, buffer: null, queue: [], init: null });
  }

  take(data) {
    if (!this.media) return;
    this.queue.push(data);
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
      buffer.appendBuffer(parts.length === 1 ? parts[0] : joined(parts));
    } catch (error) {
      if (error.name !== "QuotaExceededError") return this.retry();
      queue.unshift(...parts);
      buffer.remove(0, Math.max(0.1, this.video.currentTime - 1));
    }
    if (this.video.paused) this.video.play().catch(() => {});
  }

  /** Play what is newest: faster if a little late, by a jump if later, or over a gap. */
  keepToEdge(jump = JUMP_S) {
    const { video } = this;
    const ranges = video.buffered;
    if (this.media && this.started && performance.now() - this.heardAt > SILENT_MS) return this.retry();
    if (!this.media || !ranges.length) return undefined;
    const [start, end] = [ranges.start(ranges.length - 1), ranges.end(ranges.length - 1)];
    const behind = end - video.currentTime;
    if (video.currentTime < start || behind > jump) video.currentTime = Math.max(start, end - 0.05);
    video.playbackRate = Math.min(FASTEST, 1 + Math.max(0, behind - EDGE_S));
    return undefined;
  }

  watchFrames(media) {
    const { video, init } = this;
    const shown = (_, meta) => {
      if (this.media !== media) return;
      if (!this.started) this.tell("playing");
      this.started = true;
      this.on.frame(init.base_pts + Math.round(meta.mediaTime * 1e9), init.session ?? null, meta.mediaTime);
      video.requestVideoFrameCallback(shown);
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
