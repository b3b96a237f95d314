// Draws the bar of a camera: what is recorded, what is not and why, events, activity, locks.
import { fit } from "../overlay.js";
import { ticksOf } from "./scale.js";

export const EVENTS_HIGH = 12;
const HATCH = 6;
const LOUD = ["disk_full", "disk_error", "disk_slow", "store_hung", "recorder_down", "daemon_down", "source_down", "network", "no_key", "codec", "clock", "fenced"];

const NAMES = ["--ground", "--surface", "--sunk", "--line", "--edge", "--ink", "--ink-2", "--accent", "--accent-soft", "--warn", "--info", "--chart-2", "--chart-4"];

/** The colours of the page as they are now, light or dark. */
export function coloursOf() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(NAMES.map((name) => [name.slice(2), style.getPropertyValue(name).trim()]));
}

/**
 * @param scene {view, rows, events, activity, locks, at, range: {from, to}|null, colours}
 */
export function drawBar(canvas, scene) {
  const { context, width, height } = fit(canvas);
  if (!width) return;
  const { view, colours } = scene;
  const x = (ms) => ((ms - view.begin) / (view.end - view.begin)) * width;
  const band = { top: EVENTS_HIGH, high: height - EVENTS_HIGH - 6 };
  context.fillStyle = colours.sunk;
  context.fillRect(0, band.top, width, band.high);
  for (const row of pixelRows(scene.rows, x)) drawRow(context, row, band, colours);
  drawActivity(context, scene.activity, x, band, colours);
  for (const event of scene.events) {
    context.fillStyle = colours["chart-2"];
    context.fillRect(Math.round(x(event.ms)) - 1, 1, 2, EVENTS_HIGH - 3);
  }
  context.fillStyle = colours["chart-4"];
  for (const { begin, end } of scene.locks) context.fillRect(x(begin), height - 4, Math.max(2, x(end) - x(begin)), 3);
  if (scene.range) drawRange(context, scene.range, x, { width, height }, colours);
  if (scene.at !== null) {
    context.fillStyle = colours.ink;
    context.fillRect(Math.round(x(scene.at)) - 1, 0, 2, height);
  }
}

/** Rows by their pixels; those below one are merged with what comes before them. */
function pixelRows(rows, x) {
  const found = [];
  for (const row of rows) {
    const [left, right] = [x(row.begin), x(row.end)];
    const last = found[found.length - 1];
    if (last && right - last.left < 1) {
      last.right = right;
      if (row.kind === "claimed" || (row.kind === "video" && last.kind === "gap")) Object.assign(last, { kind: row.kind, cause: null });
    } else found.push({ left, right: Math.max(right, left + 0.5), kind: row.kind, cause: row.cause });
  }
  return found;
}

function drawRow(context, { left, right, kind, cause }, { top, high }, colours) {
  if (kind === "gap") {
    hatch(context, left, top, right - left, high, LOUD.includes(cause) ? colours.warn : colours.edge);
    return;
  }
  context.fillStyle = kind === "claimed" ? colours.accent : colours["accent-soft"];
  context.fillRect(left, top, right - left, high);
  context.fillStyle = colours.accent;
  context.fillRect(left, top + high - 2, right - left, 2);
}

function hatch(context, left, top, wide, high, colour) {
  context.save();
  context.beginPath();
  context.rect(left, top, wide, high);
  context.clip();
  context.strokeStyle = colour;
  context.globalAlpha = 0.55;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = Math.floor(Math.max(0, left) / HATCH) * HATCH - high; at < left + wide && at < 5000; at += HATCH) {
    context.moveTo(at, top + high);
    context.lineTo(at + high, top);
  }
  context.stroke();
  context.restore();
}

function drawActivity(context, activity, x, { top, high }, colours) {
  const most = Math.max(3, ...activity.map((row) => row.most ?? 0));
  context.fillStyle = colours.info;
  context.globalAlpha = 0.8;
  for (const { ms, step, most: value } of activity) {
    if (!value) continue;
    const tall = Math.max(1.5, (value / most) * high * 0.7);
    context.fillRect(x(ms), top + high - 2 - tall, Math.max(1, x(ms + step) - x(ms)), tall);
  }
  context.globalAlpha = 1;
}

function drawRange(context, { from, to }, x, { width, height }, colours) {
  context.fillStyle = colours.info;
  const [left, right] = [from === null ? null : x(from), to === null ? null : x(to)];
  context.globalAlpha = 0.22;
  if (left !== null && right !== null) context.fillRect(left, 0, right - left, height);
  context.globalAlpha = 1;
  for (const place of [left, right]) if (place !== null && place >= 0 && place <= width) context.fillRect(place - 1, 0, 2, height);
}

export function drawAxis(canvas, { view, colours }) {
  const { context, width, height } = fit(canvas);
  context.font = "11px system-ui, sans-serif";
  for (const { ms, words } of ticksOf(view, width)) {
    const left = ((ms - view.begin) / (view.end - view.begin)) * width;
    context.fillStyle = colours.line;
    context.fillRect(left, height - 5, 1, 5);
    context.fillStyle = colours["ink-2"];
    const wide = context.measureText(words).width;
    context.fillText(words, Math.max(0, Math.min(width - wide, left - wide / 2)), height - 8);
  }
}
