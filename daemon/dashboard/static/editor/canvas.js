// The picture with its rules as SVG: draws, selects and drags with mouse, touch and keys.
import { arrowOf, namesOf } from "../arrows.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { t } from "../texts.js";
import * as shapes from "./shapes.js";
import { edgesOf } from "./geometry.js";

const WIDE = 1000; // of the view box
const SNAP_PX = 10;
const LONG_PRESS_MS = 550;
const TWICE_MS = 500; // a second click at the same place is that of a double click
const COARSE = matchMedia("(pointer: coarse)");
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The width of the element in CSS pixels, for handles that are as large on any screen. */
function useWidth(ref) {
  const [width, setWidth] = useState(WIDE);
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => entry.contentRect.width && setWidth(entry.contentRect.width));
    watcher.observe(ref.current);
    return () => watcher.disconnect();
  }, []);
  return width;
}

/**
 * @param rules as the editor holds them
 * @param drawing {type, parts, current} or null
 * @param selected {rule, part, index} or null
 * @param on {draw(point), finish(), undoPoint(), cancel(), select(), drag(rule|null), drop(rule), change(rule), remove()}
 */
export function Canvas({ rules, drawing, selected, tracks, ratio, snap, locked, on, children }) {
  const svg = useRef(null);
  const width = useWidth(svg);
  const [cursor, setCursor] = useState(null); // where the next point would be
  const clicked = useRef({ at: -TWICE_MS, x: 0, y: 0 });
  const tall = WIDE / ratio;
  const unit = WIDE / width; // view box units of a CSS pixel
  const xy = ([x, y]) => [x * WIDE, y * tall];
  const path = (points, closed) => pathOf(points.map(xy), closed);

  const place = (event, skip = null) => {
    const box = svg.current.getBoundingClientRect();
    const raw = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((v) => Math.min(1, Math.max(0, v)));
    if (!snap || event.altKey) return raw;
    return shapes.snapped(raw, rules, skip, [SNAP_PX / box.width, SNAP_PX / box.height]);
  };
  const endsZone = (at) => {
    const [first] = drawing.current;
    return drawing.type === "zone" && drawing.current.length > 2 && Math.hypot((at[0] - first[0]) * width, ((at[1] - first[1]) * width) / ratio) < SNAP_PX;
  };
  const drawAt = (at) => (endsZone(at) ? on.finish() : on.draw(shapes.rounded(at)));

  const onPointerDown = (event) => {
    if (event.button !== 0) return;
    if (drawing) {
      event.preventDefault();
      svg.current.focus({ preventScroll: true });
      const { at, x, y } = clicked.current;
      const isSecond = event.timeStamp - at < TWICE_MS && Math.hypot(event.clientX - x, event.clientY - y) < SNAP_PX;
      clicked.current = { at: event.timeStamp, x: event.clientX, y: event.clientY };
      if (!isSecond) drawAt(place(event));
      return;
    }
    const { rule: ruleText, part: partText, index: indexText, grip } = event.target.dataset;
    if (!grip) return on.select(null);
    const what = { rule: Number(ruleText), part: Number(partText), index: grip === "point" ? Number(indexText) : null };
    on.select(what);
    if (!locked) startDrag(event, what, grip, Number(indexText));
  };

  const startDrag = (event, what, grip, index) => {
    event.preventDefault();
    const target = event.target;
    const before = rules[what.rule];
    const from = place(event, { rule: what.rule });
    let latest = null;
    target.setPointerCapture(event.pointerId);
    target.focus?.({ preventScroll: true });
    const press = setTimeout(() => grip === "point" && !latest && event.pointerType === "touch" && (stop(), on.remove(what)), LONG_PRESS_MS);
    const move = (next) => {
      const skip = { rule: what.rule, part: what.part, index };
      const at = place(next, grip === "point" ? skip : null);
      if (!latest && Math.hypot(next.clientX - event.clientX, next.clientY - event.clientY) < 3) return;
      clearTimeout(press);
      const step = [at[0] - from[0], at[1] - from[1]];
      latest = grip === "point" ? shapes.movePoint(before, what.part, index, at)
        : grip === "edge" ? shapes.moveEdge(before, what.part, index, step)
        : shapes.movePart(before, what.part, step);
      on.drag(what.rule, latest);
    };
    const stop = () => {
      clearTimeout(press);
      target.removeEventListener("pointermove", move);
      target.removeEventListener("pointerup", end);
      target.removeEventListener("pointercancel", give);
    };
    const end = () => {
      stop();
      if (latest) on.drop(what.rule, latest);
    };
    const give = () => {
      stop();
      on.drag(what.rule, null);
    };
    target.addEventListener("pointermove", move);
    target.addEventListener("pointerup", end);
    target.addEventListener("pointercancel", give);
  };

  const onDoubleClick = (event) => {
    if (drawing) return drawing.current.length >= shapes.leastPoints(drawing) && on.finish();
    const { rule, part, index, grip } = event.target.dataset;
    if (grip === "edge" && !locked) on.change(Number(rule), shapes.addPoint(rules[rule], Number(part), Number(index), place(event, { rule: Number(rule), part: Number(part) })));
  };
  const onContextMenu = (event) => {
    const { rule, part, index, grip } = event.target.dataset;
    if (grip !== "point" || locked) return;
    event.preventDefault();
    on.remove({ rule: Number(rule), part: Number(part), index: Number(index) });
  };

  const stepOf = (event) => STEPS[event.key]?.map((v) => v * (event.shiftKey ? 0.01 : 0.001));
  const onDrawKey = (event) => {
    const step = STEPS[event.key]?.map((v) => v * (event.shiftKey ? 0.05 : 0.01));
    const at = cursor ?? [0.5, 0.5];
    if (step) setCursor(shapes.rounded([at[0] + step[0], at[1] + step[1]]));
    else if (event.key === " ") drawAt(at);
    else if (event.key === "Enter") on.finish();
    else if (event.key === "Backspace") on.undoPoint();
    else if (event.key === "Escape") on.cancel();
    else return;
    event.preventDefault();
  };
  const onKeyDown = (event) => {
    if (drawing) return onDrawKey(event);
    const { rule, part, index, grip } = event.target.dataset ?? {};
    if (event.key === "Escape") return on.select(null);
    if (!grip || locked) return undefined;
    const what = { rule: Number(rule), part: Number(part), index: grip === "point" ? Number(index) : null };
    const step = stepOf(event);
    if (step) {
      const old = rules[what.rule];
      const point = grip === "point" && old.parts[what.part][what.index];
      on.change(what.rule, point ? shapes.movePoint(old, what.part, what.index, [point[0] + step[0], point[1] + step[1]]) : shapes.moveAll(old, step));
    } else if (event.key === "Delete" || event.key === "Backspace") on.remove(what);
    else if (event.key === "Insert" || event.key === "+") on.change(what.rule, shapes.addPoint(rules[what.rule], what.part, what.index ?? 0));
    else return undefined;
    event.preventDefault();
    return undefined;
  };
  const onFocus = (event) => {
    const { rule, part, index, grip } = event.target.dataset ?? {};
    if (!drawing && grip) on.select({ rule: Number(rule), part: Number(part), index: grip === "point" ? Number(index) : null });
  };

  const shapeOf = (rule, number) => {
    const chosen = selected?.rule === number;
    const closed = shapes.isClosed(rule);
    const bad = shapes.problemOf(rule) !== null;
    return html`<g key=${number} class=${`shape shape-${rule.type} ${chosen ? "is-chosen" : ""} ${bad ? "is-bad" : ""}`}>
      ${rule.parts.map((points, part) => html`
        <path class="body" d=${path(points, closed)} data-grip=${closed ? "body" : null} data-rule=${number} data-part=${part} />
        ${edgesOf(points, closed).map(([a, b], index) => html`<path class="edge" d=${path([a, b])} data-grip="edge" data-rule=${number} data-part=${part} data-index=${index} />`)}
        `)}
      ${arrowOf(rule.type, rule.parts.map((points) => points.map(xy)), unit).map((points) => html`<path class="arrow" d=${pathOf(points)} />`)}
      ${namesOf(rule, rule.parts.length).map((name, part) => rule.parts[part]?.length > 0 && html`<text class="shape-name" x=${xy(rule.parts[part][0])[0] + 9 * unit}
        y=${Math.max(14 * unit, xy(rule.parts[part][0])[1] - 8 * unit)} style=${{ fontSize: `${13 * unit}px` }}>${name}</text>`)}
      <circle class="whole" cx=${middle(rule, xy)[0]} cy=${middle(rule, xy)[1]} r=${(COARSE.matches ? 14 : 6) * unit} tabindex=${drawing ? -1 : 0} role="button" aria-label=${t.rules.shapeOf(rule.name)}
        data-grip="body" data-rule=${number} data-part="0" />
      ${chosen && !drawing && COARSE.matches && rule.parts.map((points, part) => points.map((point, index) => html`<circle class="reach" cx=${xy(point)[0]} cy=${xy(point)[1]} r=${22 * unit}
        data-grip="point" data-rule=${number} data-part=${part} data-index=${index} />`))}
      ${chosen && !drawing && rule.parts.map((points, part) => points.map((point, index) => html`<circle key=${`${part}.${index}`}
        class=${`point ${selected.index === index && selected.part === part ? "is-chosen" : ""}`} cx=${xy(point)[0]} cy=${xy(point)[1]} r=${(COARSE.matches ? 11 : 7) * unit}
        tabindex="0" role="button" aria-label=${t.rules.point(rule.name, rule.parts.length > 1 ? part + 1 : 0, index + 1, point[0].toFixed(3), point[1].toFixed(3))}
        data-grip="point" data-rule=${number} data-part=${part} data-index=${index} />`))}
    </g>`;
  };

  const ghost = drawing && cursor ? [...drawing.current, cursor] : drawing?.current;
  return html`<div class="editor-picture" style=${{ "--ratio": ratio }}>${children}
    <svg ref=${svg} viewBox=${`0 0 ${WIDE} ${tall}`} preserveAspectRatio="none" tabindex="0" role="application" aria-label=${t.rules.canvas}
      class=${drawing ? "is-drawing" : ""} onPointerDown=${onPointerDown} onDblClick=${onDoubleClick} onContextMenu=${onContextMenu} onKeyDown=${onKeyDown}
      onFocusIn=${onFocus} onPointerMove=${(event) => drawing && setCursor(place(event))}>
      <g class="tracks">${tracks.map((track) => html`<polyline key=${track.track} points=${track.points.map(([, x, y]) => xy([x, y]).map((v) => v.toFixed(1)).join(",")).join(" ")} />`)}
        ${tracks.map((track) => track.points.filter((_, i) => i % 4 === 0).map(([, x, y]) => html`<circle cx=${xy([x, y])[0]} cy=${xy([x, y])[1]} r=${1.8 * unit} />`))}</g>
      ${rules.map((rule, number) => rule.parts.length > 0 && shapeOf(rule, number))}
      ${drawing && html`<g class=${`shape shape-${drawing.type} is-new`}>
        ${drawing.parts.map((points) => html`<path class="body" d=${path(points, false)} />`)}
        <path class="body" d=${path(ghost, false)} />
        ${drawing.current.map((point) => html`<circle class="point" cx=${xy(point)[0]} cy=${xy(point)[1]} r=${6 * unit} />`)}
        ${cursor && html`<path class="cross" d=${`M${xy(cursor)[0] - 12 * unit} ${xy(cursor)[1]}h${24 * unit}M${xy(cursor)[0]} ${xy(cursor)[1] - 12 * unit}v${24 * unit}`} />`}</g>`}
    </svg></div>`;
}

const pathOf = (points, closed = false) => points.map((point, i) => `${i ? "L" : "M"}${point.map((v) => v.toFixed(2)).join(" ")}`).join("") + (closed ? "Z" : "");

const middle = (rule, xy) => {
  const points = rule.parts.flat().map(xy);
  return [0, 1].map((i) => points.reduce((sum, point) => sum + point[i], 0) / Math.max(1, points.length));
};
