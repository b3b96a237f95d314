// One camera's picture: a still first, then live video over it, and boxes over both.
import { at, still } from "./api.js";
import { feed } from "./feed.js";
import * as format from "./format.js";
import { between } from "./frames.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { LivePlayer } from "./live.js";
import { frameLog } from "./model.js";
import { clear, draw, tailsOf } from "./overlay.js";
import { t } from "./texts.js";

const STILL_MS = 3000; // between stills of a wall
const PACES = { still: 220, late: 1000 }; // where stills stand in for video
const FAILED_MS = 3000;
const STILL_AFTER_S = 3; // video that is later than this gives way to stills that are newer
const OLD_S = 4; // from here on a picture says how old it is
const LOOK_MS = 500;
const HOLD_MS = 300; // boxes stay so long over pictures that are not analysed yet

/** Whether an element is, or nearly is, on the screen. */
export function useOnScreen(ref) {
  const [visible, setVisible] = useState(false);
  useEffect(() => {
    const watcher = new IntersectionObserver(([entry]) => setVisible(entry.isIntersecting), { rootMargin: "120px" });
    watcher.observe(ref.current);
    return () => watcher.disconnect();
  }, []);
  return visible;
}

/** Load stills for as long as they are wanted: a new one each `every` ms. */
function useStill(row, image, every, wanted, onStill) {
  const [failure, setFailure] = useState(null);
  const pace = useRef(every);
  const hurry = useRef(null);
  useEffect(() => {
    // A still that is under way is waited for: a request again would be the last of all that the browser has waiting.
    pace.current = every;
    hurry.current?.();
  }, [every]);
  useEffect(() => {
    setFailure(null); // of another time
    if (!wanted) return undefined;
    let [timer, stopped, url, loading] = [0, false, null, false];
    const load = async () => {
      let wait = 0;
      loading = true;
      try {
        const found = await still(row.daemon, row.id);
        if (stopped) return;
        const next = URL.createObjectURL(found.blob);
        image.current.src = next;
        await image.current.decode().catch(() => {});
        if (url) URL.revokeObjectURL(url);
        url = next;
        setFailure(null);
        if (!stopped) onStill(found);
      } catch (error) {
        if (!stopped) setFailure(error.message);
        wait = FAILED_MS;
      }
      loading = false;
      if (!stopped) timer = setTimeout(next, wait || pace.current);
    };
    const next = () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(next, 1000);
      else load();
    };
    hurry.current = () => loading || next();
    load();
    return () => {
      stopped = true;
      hurry.current = null;
      clearTimeout(timer);
      if (url) URL.revokeObjectURL(url);
    };
  }, [row.daemon, row.id, wanted, row.state === "up"]);
  return failure;
}

/** Draws what belongs to the shown frame, and says so by an event that bubbles: other parts show the cause of a drop. */
export class Painter {
  constructor(canvas, row, options) {
    Object.assign(this, { canvas, row, options, log: frameLog(row.daemon, row.id), shown: null, held: null, scene: null });
    this.stop = this.log.listen(() => this.shown?.kind === "pending" && this.again());
  }

  close() {
    this.stop();
  }

  /** What is shown now, with what has become known of it. */
  again() {
    const { still, pts, session, mediaTime } = this.shown;
    if (still) this.still(still);
    else this.frame(pts, session, mediaTime);
  }

  frame(pts, session, mediaTime) {
    const found = this.log.find(pts, session);
    this.shown = { pts, session, mediaTime, kind: found.kind };
    const held = found.kind === "pending" && this.held?.session === session && performance.now() - this.held.at < HOLD_MS ? this.held.message : null;
    if (found.kind === "exact") this.held = { message: found.message, session, at: performance.now() };
    if (found.kind === "exact") this.paint(found.message, found.message.detections, pts, false);
    else if (held) this.paint(held, held.detections, pts, true);
    else if (found.kind === "dropped") this.paint(found.before, between(found.before, found.after, pts), pts, true);
    else this.paint(found.before ?? this.log.newest, [], pts, false);
    this.tell({ pts, mediaTime, ...found });
  }

  still(still) {
    const message = this.log.bySeq(still.seq);
    const kind = message ? "exact" : "pending";
    this.shown = { still, kind };
    this.paint(message ?? this.log.newest, message?.detections ?? [], message?.pts ?? still.pts, false);
    this.tell({ pts: still.pts, kind, message });
  }

  paint(message, detections, pts, estimated) {
    const { rules, tails, small, hidden, zoom } = this.options;
    const image = message?.image ?? { width: 1, height: 1 };
    const scene = { detections, image, estimated, small, hidden, rules };
    if (tails && message) scene.tails = tailsOf(this.log.frames, pts);
    this.scene = detections.length || rules?.length || scene.tails?.length ? scene : null;
    if (this.scene) draw(this.canvas, scene, zoom);
    else clear(this.canvas);
    this.boxes = detections;
  }

  tell(detail) {
    const { canvas, boxes } = this;
    canvas.dispatchEvent(new CustomEvent("lookout-frame", { bubbles: true, detail: { ...detail, boxes } }));
  }
}

const isAside = (video) => Boolean(video) && document.pictureInPictureElement === video;

function ofPicture({ isVideo, age }, video, image, turns, scene) {
  const element = isVideo ? video : image;
  return (element.videoWidth ?? element.naturalWidth) ? { element, turns: isVideo ? turns : 0, scene, age } : null;
}

/** Width over height as it is shown, of a source's picture. */
export const ratioOf = (row) => (row.width && row.height ? (row.width * (row.pixel_aspect ?? 1)) / row.height : null);

/**
 * What is shown: the last frame of the video or the last still, whichever was taken later.
 * @returns {{isVideo, old, now, look, stillCame}} old is in whole seconds, and null while the picture is as new as it
 *   should be; now tells {isVideo, age} at this moment
 */
function useShown(player, pace) {
  const [shown, setShown] = useState({ isVideo: false, old: null });
  const stillAt = useRef(null);
  const now = () => {
    const time = performance.now();
    const still = stillAt.current === null ? null : (time - stillAt.current) / 1000;
    if (!player.current?.shown) return { isVideo: false, age: still };
    const age = player.current.age();
    return still === null || (age ?? 0) < still ? { isVideo: true, age } : { isVideo: false, age: still };
  };
  const look = () => {
    const { isVideo, age } = now();
    const isOld = age !== null && age > OLD_S + (isVideo ? 0 : pace / 1000);
    const old = isOld ? Math.floor(age) : null;
    setShown((before) => (before.isVideo === isVideo && before.old === old ? before : { isVideo, old }));
    return isVideo;
  };
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    const timer = setInterval(() => latest.current(), LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  const stillCame = () => {
    stillAt.current = performance.now();
    return !look();
  };
  return { ...shown, now, look, stillCame };
}

/**
 * @param row of the source
 * @param live show video (or fast stills) while on screen
 * @param options {rules, tails, small, hidden, zoom}: hidden leaves the boxes out; zoom is that of overlay.js
 * @param onState called with each LiveState
 * @param handle a ref that gets {age, video, shown}: age() tells the age of what is shown, in s, or null; shown() gives
 *   {element, turns, scene, age} of it, or null before the first picture
 */
export function Picture({ row, live, options = {}, onState = null, handle = null, children = null }) {
  const frame = useRef(null);
  const image = useRef(null);
  const video = useRef(null);
  const canvas = useRef(null);
  const painter = useRef(null);
  const player = useRef(null);
  const visible = useOnScreen(frame) || isAside(video.current); // a picture in picture is on the screen
  const [state, setState] = useState({ phase: "still", reason: null, age: null });
  const [turns, setTurns] = useState(0); // of the video, a quarter clockwise each; boxes are upright
  const [natural, setNatural] = useState(null); // ratio of the last still: a camera may change its size at any time
  const isFresh = live && (state.phase === "playing" || (state.phase === "late" && state.age <= STILL_AFTER_S));
  const every = live ? (PACES[state.phase] ?? STILL_MS) : STILL_MS;
  const shown = useShown(player, every);
  const isUp = row.state === "up";
  if (handle) handle.current = { age: () => shown.now().age, video: () => video.current, shown: () => ofPicture(shown.now(), video.current, image.current, turns, painter.current.scene) };

  useEffect(() => setNatural(null), [row.width, row.height, row.pixel_aspect]); // it has told of another one
  useEffect(() => {
    painter.current = new Painter(canvas.current, row, options);
    return () => painter.current.close();
  }, [row.daemon, row.id]);
  useEffect(() => {
    painter.current.options = options;
    if (painter.current.shown) painter.current.again();
  }, [JSON.stringify(options)]);
  useEffect(() => {
    if (!live || !visible) return undefined;
    return feed.want({ sources: [[row.daemon, row.id]] });
  }, [row.daemon, row.id, live, visible]);
  useEffect(() => {
    const told = (next) => {
      setState(next);
      onState?.(next);
      shown.look();
    };
    if (!live || !visible) return undefined;
    if (row.live === "jpeg") return void told(isUp ? { phase: "still", reason: t.live.noPackets, age: null } : { phase: "waiting", reason: t.live.source(t.states[row.state] ?? row.state), age: null });
    const { log } = painter.current;
    player.current = new LivePlayer(video.current, `/api/live/${at(row.daemon, row.id)}`, {
      state: told,
      frame: (...frame) => shown.look() && painter.current.frame(...frame),
      turns: setTurns,
      older: (pts, session) => log.olderThan(pts, session),
    });
    return () => {
      player.current.close();
      player.current = null;
      told({ phase: "still", reason: null, age: null });
    };
  }, [row.daemon, row.id, live, visible, row.live === "jpeg", row.live === "jpeg" && row.state]);

  const failure = useStill(row, image, every, visible && !isFresh, (found) => {
    if (shown.stillCame()) painter.current.still(found);
    const { naturalWidth: across, naturalHeight: down } = image.current;
    setNatural(across ? (across * (row.pixel_aspect ?? 1)) / down : null);
  });
  const isOld = shown.old !== null;
  const { zoom } = options;
  const words = [isOld && t.picture.old(format.duration(shown.old)), !shown.isVideo && failure].filter(Boolean).join(" ");
  return html`<div class="picture" ref=${frame} style=${{ "--ratio": (shown.isVideo ? null : natural) ?? ratioOf(row) ?? natural ?? 16 / 9 }} data-phase=${live ? state.phase : "off"}>
    <div class="picture-media" style=${{ transform: zoom ? `translate(${100 * zoom.x}%, ${100 * zoom.y}%) scale(${zoom.k})` : null }}>
    <img ref=${image} alt=${t.picture.alt(row.id)} class=${!shown.isVideo && (isOld || failure) ? "is-old" : ""} />
    <video ref=${video} muted playsinline autoplay aria-hidden="true" class=${`turned-${turns} ${isOld ? "is-old" : ""}`} hidden=${!shown.isVideo}></video>
    </div>
    <canvas ref=${canvas} aria-hidden="true"></canvas>
    ${words && html`<p class="picture-note">${words}</p>`}
    ${children}
  </div>`;
}
