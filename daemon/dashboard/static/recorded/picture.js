// The picture of one camera of the past, with its boxes, or why there is none.
import { html, useEffect, useRef } from "../html.js";
import { keyOf, sources } from "../model.js";
import { clear, draw, tailsOf } from "../overlay.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { PastCamera } from "./camera.js";
import * as scale from "./scale.js";

/** Draws what belongs to the shown picture, and says so by an event that bubbles. */
class Painter {
  constructor(canvas, camera, clock) {
    Object.assign(this, { canvas, camera, clock, options: { boxes: true, tails: true }, what: null, told: null });
    this.stop = camera.tracks.listen(() => this.what && this.paint(this.what));
  }

  paint(what) {
    const { boxes, tails } = this.options;
    const { state } = this.clock;
    const found = boxes || tails ? this.camera.tracks.find(what, state.value.playing ? state.value.rate : 0) : { kind: "off", detections: [], image: null, tail: [] };
    const isNew = this.what !== what || this.told !== found.kind || found.kind === "pending";
    this.what = what;
    this.told = found.kind;
    const image = found.image ?? { width: 1, height: 1 };
    const lines = tails && found.tail.length ? tailsOf(found.tail, found.tail[found.tail.length - 1].pts) : [];
    const scene = { detections: found.detections, image, hidden: !boxes, tails: lines, estimated: found.kind === "between" };
    if (found.detections.length || lines.length) draw(this.canvas, scene);
    else clear(this.canvas);
    if (!isNew) return;
    const { ms, pts, session, mediaTime } = what;
    const detail = { ms, pts, session, mediaTime, kind: found.kind, boxes: found.detections, image };
    this.canvas.dispatchEvent(new CustomEvent("lookout-past-frame", { bubbles: true, detail }));
  }

  clear() {
    this.what = null;
    clear(this.canvas);
  }

  close() {
    this.stop();
  }
}

const ratioOf = (file, row) => {
  if (!file?.width) return null;
  const [wide, high] = file.turns % 2 ? [file.height, file.width] : [file.width, file.height];
  return (wide * (row?.pixel_aspect ?? 1)) / high;
};

/**
 * @param options {boxes, tails}
 * @param handle a ref that gets {camera, snapshot}
 * @param onRemove for a camera that was added; null for the first, which the clock asks before others
 */
export function PastPicture({ place, clock, options, handle = null, onRemove = null }) {
  const video = useRef(null);
  const image = useRef(null);
  const canvas = useRef(null);
  const held = useRef(null);
  if (!held.current) held.current = { camera: null, painter: null };
  const camera = useCamera(place, clock, { video, image, canvas }, held.current, !onRemove);
  const row = useStore(sources).get(keyOf(place.daemon, place.source));
  useEffect(() => {
    const { painter } = held.current;
    painter.options = options;
    if (painter.what) painter.paint(painter.what);
  }, [options.boxes, options.tails]);
  const { shown, gap, stills, failure } = useStore(camera.state);
  if (handle) handle.current = { camera, snapshot: (withBoxes) => snapshot({ video, image, canvas }, camera, withBoxes) };
  const turns = shown?.file.turns ?? 0;
  const words = gap ? t.recordings.sayGap(gap) : failure;
  return html`<figure class="past-picture">
    <div class="picture" style=${{ "--ratio": ratioOf(shown?.file, row) ?? 16 / 9 }} data-gap=${gap ? gap.cause ?? "unknown" : null}>
      <div class="picture-media">
        <img ref=${image} alt=${shown ? t.recordings.picture(place.source, scale.fullOf(shown.ms)) : ""} hidden=${!stills} class=${gap ? "is-old" : ""} />
        <video ref=${video} muted playsinline aria-hidden="true" class=${`turned-${turns} ${gap ? "is-old" : ""}`} hidden=${Boolean(stills)}></video>
      </div>
      <canvas ref=${canvas} aria-hidden="true" hidden=${Boolean(gap)}></canvas>
      ${words && html`<p class="picture-note" role="status">${words}</p>`}
    </div>
    <figcaption><b>${place.source}</b> ${shown && !gap && html`<time class="past-shown" datetime=${scale.isoOf(shown.ms)}>${scale.preciseOf(shown.ms)}</time>`}
      <${Kind} element=${canvas} />
      ${stills && html`<span class="warn">${stills}</span>`}
      ${onRemove && html`<button class="plain" onClick=${onRemove}>${t.recordings.leaveOut(place.source)}</button>`}</figcaption>
  </figure>`;
}

/** The objects behind a picture of a place, which live as long as it. They need its elements, so the first drawing has none. */
function useCamera(place, clock, elements, held, isFirst) {
  if (!held.camera) held.camera = new PastCamera(place, clock);
  useEffect(() => {
    const { camera } = held;
    held.painter = new Painter(elements.canvas.current, camera, clock);
    camera.open({ video: elements.video.current, image: elements.image.current }, (what) => held.painter.paint(what), isFirst);
    return () => {
      held.painter.close();
      camera.close();
    };
  }, []);
  return held.camera;
}

/** What is known of the boxes of the shown picture. It changes with each picture, so no component is drawn again. */
function Kind({ element }) {
  const place = useRef(null);
  useEffect(() => {
    const canvas = element.current;
    const onFrame = ({ detail }) => {
      const words = t.recordings.kinds[detail.kind] ?? "";
      if (place.current && place.current.textContent !== words) place.current.textContent = words; // none once it is left
    };
    canvas.addEventListener("lookout-past-frame", onFrame);
    return () => canvas.removeEventListener("lookout-past-frame", onFrame);
  }, []);
  return html`<span class="quiet" ref=${place}></span>`;
}

/** The shown picture as a JPEG; null if there is none. */
async function snapshot({ video, image, canvas }, camera, withBoxes) {
  const { shown, gap } = camera.state.value;
  if (!shown || gap) return null;
  const source = camera.isStill ? image.current : video.current;
  const turns = camera.isStill ? 0 : shown.file.turns;
  const [wide, high] = camera.isStill ? [source.naturalWidth, source.naturalHeight] : [source.videoWidth, source.videoHeight];
  const target = document.createElement("canvas");
  Object.assign(target, turns % 2 ? { width: high, height: wide } : { width: wide, height: high });
  const context = target.getContext("2d");
  context.translate(target.width / 2, target.height / 2);
  context.rotate((turns * Math.PI) / 2);
  context.drawImage(source, -wide / 2, -high / 2, wide, high);
  context.resetTransform();
  if (withBoxes) context.drawImage(canvas.current, 0, 0, target.width, target.height);
  const blob = await new Promise((resolve) => target.toBlob(resolve, "image/jpeg", 0.92));
  return { blob, ms: shown.ms };
}
