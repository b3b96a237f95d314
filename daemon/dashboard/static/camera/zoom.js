// A picture looked at more closely: by wheel, two fingers, keys and buttons.
import { useEffect, useMemo, useRef, useState } from "../html.js";

const MOST = 8;
const STEP = 1.25;
const KEYS = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
/** How often it is enlarged, and where its upper left corner is, in shares of the frame. */
export const WHOLE = { k: 1, x: 0, y: 0 };

const within = ({ k, x, y }) => ({ k, x: Math.min(0, Math.max(1 - k, x)), y: Math.min(0, Math.max(1 - k, y)) });

/** Enlarged by a factor; what is at a place of the frame stays there. */
export function zoomed(zoom, factor, [px, py] = [0.5, 0.5]) {
  const k = Math.min(MOST, Math.max(1, zoom.k * factor));
  const by = k / zoom.k;
  return within({ k, x: px - (px - zoom.x) * by, y: py - (py - zoom.y) * by });
}

export const moved = (zoom, [dx, dy]) => within({ ...zoom, x: zoom.x + dx, y: zoom.y + dy });

function follow(element, change, current) {
  const pointers = new Map();
  const placeOf = ({ clientX, clientY }) => {
    const box = element.getBoundingClientRect();
    return [(clientX - box.left) / box.width, (clientY - box.top) / box.height];
  };
  const middle = (places) => [0, 1].map((axis) => places.reduce((sum, place) => sum + place[axis], 0) / places.length);
  const apart = ([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]);
  const onWheel = (event) => {
    // A page that is scrolled, and a whole picture that is to get smaller, leave the wheel to the page.
    const isZoom = event.ctrlKey || current().k > 1 || document.fullscreenElement || (event.deltaY < 0 && !window.scrollY);
    if (!isZoom || (event.deltaY > 0 && current().k === 1 && !event.ctrlKey)) return;
    event.preventDefault();
    change((zoom) => zoomed(zoom, STEP ** Math.max(-2, Math.min(2, -event.deltaY / 60)), placeOf(event)));
  };
  const onDown = (event) => {
    if (event.button !== 0) return;
    pointers.set(event.pointerId, placeOf(event));
    if (current().k > 1 || pointers.size > 1) element.setPointerCapture(event.pointerId);
  };
  const onMove = (event) => {
    if (!event.buttons) pointers.delete(event.pointerId); // it was let go outside
    if (!pointers.has(event.pointerId)) return;
    const before = [...pointers.values()];
    pointers.set(event.pointerId, placeOf(event));
    const now = [...pointers.values()];
    const [from, to] = [middle(before), middle(now)];
    change((zoom) => moved(now.length === 2 ? zoomed(zoom, apart(now) / Math.max(0.01, apart(before)), from) : zoom, [to[0] - from[0], to[1] - from[1]]));
  };
  const onUp = (event) => pointers.delete(event.pointerId);
  const onDouble = (event) => change((zoom) => (zoom.k > 1 ? WHOLE : zoomed(zoom, 2, placeOf(event))));
  const onKey = (event) => {
    if (event.target !== element || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") change((zoom) => zoomed(zoom, STEP));
    else if (event.key === "-") change((zoom) => zoomed(zoom, 1 / STEP));
    else if (event.key === "0") change(() => WHOLE);
    else if (KEYS[event.key] && current().k > 1) change((zoom) => moved(zoom, KEYS[event.key]));
    else return;
    event.preventDefault();
  };
  const listeners = [["pointerdown", onDown], ["pointermove", onMove], ["pointerup", onUp], ["pointercancel", onUp], ["dblclick", onDouble], ["keydown", onKey]];
  for (const [name, listener] of listeners) element.addEventListener(name, listener);
  element.addEventListener("wheel", onWheel, { passive: false });
  return () => {
    for (const [name, listener] of [...listeners, ["wheel", onWheel]]) element.removeEventListener(name, listener);
  };
}

/** @returns {{zoom, by, reset}} `by` enlarges by steps */
export function useZoom(ref) {
  const [zoom, setZoom] = useState(WHOLE);
  const latest = useRef(zoom);
  latest.current = zoom;
  const change = useMemo(() => (make) => setZoom((before) => {
    const after = make(before);
    return after.k === before.k && after.x === before.x && after.y === before.y ? before : after;
  }), []);
  useEffect(() => follow(ref.current, change, () => latest.current), []);
  return { zoom, by: (steps) => change((before) => zoomed(before, STEP ** steps)), reset: () => change(() => WHOLE) };
}
