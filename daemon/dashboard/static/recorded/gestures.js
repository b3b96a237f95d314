// Wheel, pinch and drag over a bar.
import { useEffect, useRef } from "../html.js";
import * as scale from "./scale.js";

const CLICK_PX = 5;
const WHEEL = 0.0015; // of a pixel

/**
 * @param ref of the element
 * @param on {setView, onClick(ms), onPoint(ms|null)}
 */
export function useGestures(ref, view, on) {
  const latest = useRef({ view, ...on });
  latest.current = { view, ...on };
  useEffect(() => listen(ref.current, () => latest.current), []);
}

function listen(element, current) {
  const stop = new AbortController();
  const options = { signal: stop.signal, passive: false };
  const fingers = new Map();
  let begun = null; // {x, view, moved}
  const left = () => element.getBoundingClientRect();
  const moment = (x, view = current().view) => {
    const box = left();
    return view.begin + ((x - box.left) / box.width) * (view.end - view.begin);
  };
  const on = (name, handler) => element.addEventListener(name, handler, options);

  on("wheel", (event) => {
    event.preventDefault();
    const { view, setView } = current();
    const scaled = event.deltaMode === 1 ? 30 : 1;
    const aside = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(aside) > Math.abs(event.shiftKey ? 0 : event.deltaY)) setView(scale.moved(view, ((aside * scaled) / left().width) * (view.end - view.begin)));
    else setView(scale.zoomed(view, Math.exp(Math.max(-300, Math.min(300, event.deltaY * scaled)) * WHEEL), moment(event.clientX)));
  });
  on("pointerdown", (event) => {
    if (event.button) return;
    fingers.set(event.pointerId, event.clientX);
    element.setPointerCapture(event.pointerId);
    begin(event.clientX);
  });
  const begin = (x) => {
    const places = [...fingers.values()];
    begun = { x, view: current().view, moved: places.length > 1, places };
  };
  on("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return current().onPoint?.(event.pointerType === "touch" ? null : moment(event.clientX));
    fingers.set(event.pointerId, event.clientX);
    const { view } = begun;
    if (fingers.size === 2) {
      const [a, b] = [...fingers.values()];
      const [c, d] = begun.places;
      const factor = Math.abs(c - d) / Math.max(8, Math.abs(a - b));
      current().setView(scale.zoomed(view, factor, moment((c + d) / 2, view)));
    } else if (begun.moved || Math.abs(event.clientX - begun.x) > CLICK_PX) {
      begun.moved = true;
      current().setView(scale.moved(view, ((begun.x - event.clientX) / left().width) * (view.end - view.begin)));
    }
    return undefined;
  });
  const end = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    if (event.type === "pointerup" && !begun.moved) current().onClick?.(moment(event.clientX));
    if (fingers.size) begin([...fingers.values()][0]);
    if (fingers.size) begun.moved = true;
  };
  on("pointerup", end);
  on("pointercancel", end);
  on("pointerleave", () => current().onPoint?.(null));
  return () => stop.abort();
}
