// What is drawn over a picture: boxes, tails of tracks, rules, attributes. All of it goes to one canvas.

import { arrowOf, namesOf } from "./arrows.js";

// Colours that stand out from pictures and from each other; each line has a dark edge, so that it can be seen on white.
const COLOURS = ["#ffd23f", "#4cc9f0", "#f72585", "#80ed99", "#ff8c42", "#b794f6", "#2ec4b6", "#ff6b6b"];
const EDGE = "rgba(0, 0, 0, 0.75)";
const TAIL_NS = 3e9;
const RULE_COLOURS = { zone: "#9be7ff", line: "#ffe08a", gate: "#ffb4e6" };

export function colourOf(label) {
  let sum = 0;
  for (const letter of label) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  return COLOURS[sum % COLOURS.length];
}

/** Give the canvas as many pixels as the screen shows of it; returns its size in CSS pixels. */
export function fit(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = Math.min(2, devicePixelRatio || 1);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/**
 * @param scene {detections, image: {width, height}, tails, rules, estimated, small}: estimated boxes lie between two
 *   analysed frames, or are of a moment ago, and are dashed
 * @param zoom {k, x, y}: how often it is enlarged, and where its corner is, in shares of the canvas
 */
export function draw(canvas, scene, zoom = null) {
  const { context, width, height } = fit(canvas);
  if (!width) return;
  const { k, x, y } = zoom ?? { k: 1, x: 0, y: 0 };
  context.translate(x * width, y * height);
  drawOn(context, k * width, k * height, scene);
}

/** The scene over a picture of so many units. */
export function drawOn(context, width, height, scene) {
  const scale = { x: width / scene.image.width, y: height / scene.image.height, width, height };
  for (const rule of scene.rules ?? []) drawRule(context, rule, scale);
  for (const tail of scene.tails ?? []) drawTail(context, tail, scale);
  for (const found of scene.hidden ? [] : scene.detections) drawBox(context, found, scale, scene);
}

export const clear = (canvas) => void fit(canvas);

function stroke(context, colour, width, dash = []) {
  context.lineJoin = "round";
  context.setLineDash([]);
  context.strokeStyle = EDGE;
  context.lineWidth = width + 2;
  if (!dash.length) context.stroke();
  context.setLineDash(dash);
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.stroke();
  context.setLineDash([]);
}

function drawBox(context, found, scale, scene) {
  const [x1, y1, x2, y2] = found.box;
  const colour = colourOf(found.track_label ?? found.label);
  context.beginPath();
  context.rect(x1 * scale.x, y1 * scale.y, (x2 - x1) * scale.x, (y2 - y1) * scale.y);
  stroke(context, colour, scene.small ? 1.5 : 2, scene.estimated ? [5, 4] : []);
  for (const [x, y, sure] of found.keypoints ?? []) {
    if (sure > 0.3) dot(context, x * scale.x, y * scale.y, colour);
  }
  if (!scene.small) drawWords(context, wordsOf(found), x1 * scale.x, y1 * scale.y, colour, scale);
}

function dot(context, x, y, colour) {
  context.beginPath();
  context.arc(x, y, 2.5, 0, 7);
  context.fillStyle = colour;
  context.fill();
}

function wordsOf(found) {
  const id = found.track_id == null ? "" : ` #${found.track_id}`;
  const attributes = Object.entries(found.attributes ?? {})
    .filter(([, row]) => row.value !== null)
    .map(([name, row]) => `${name}: ${row.value}${row.settled ? "" : "?"}`);
  const by = found.model === undefined ? "" : ` (${found.model})`;
  return [`${found.label}${id} ${Math.round(found.confidence * 100)}%${by}`, ...attributes];
}

function drawWords(context, lines, x, y, colour, scale) {
  context.font = "600 12px system-ui, sans-serif";
  const wide = Math.max(...lines.map((line) => context.measureText(line).width)) + 10;
  const high = lines.length * 15 + 4;
  const left = Math.max(0, Math.min(x - 1, scale.width - wide));
  const top = y - high < 0 ? y + 2 : y - high;
  context.fillStyle = "rgba(12, 16, 14, 0.82)";
  context.fillRect(left, top, wide, high);
  context.fillStyle = colour;
  context.fillRect(left, top, 3, high);
  context.fillStyle = "#fff";
  lines.forEach((line, index) => context.fillText(line, left + 7, top + 14 + index * 15));
}

function drawTail(context, { points, label }, scale) {
  if (points.length < 2) return;
  trace(context, points.map(([x, y]) => [x * scale.x, y * scale.y]));
  context.globalAlpha = 0.75;
  stroke(context, colourOf(label), 1.5);
  context.globalAlpha = 1;
}

/** The outlines of a rule as the configuration has it, in shares of the picture. */
export function outlinesOf(rule) {
  const [w, h] = rule.frame_size ?? [1, 1];
  const lists = rule.points ? [rule.points] : (rule.polygons ?? rule.lines ?? []);
  return lists.map((points) => points.map(([x, y]) => [x / w, y / h]));
}

function drawRule(context, rule, scale) {
  const colour = RULE_COLOURS[rule.type];
  const parts = outlinesOf(rule).map((points) => points.map(([x, y]) => [x * scale.width, y * scale.height]));
  for (const points of parts) {
    trace(context, points);
    if (rule.type === "zone") {
      context.closePath();
      context.globalAlpha = 0.14;
      context.fillStyle = colour;
      context.fill();
      context.globalAlpha = 1;
    }
    stroke(context, colour, 1.5, rule.type === "zone" ? [7, 4] : []);
  }
  for (const points of arrowOf(rule.type, parts)) {
    trace(context, points);
    stroke(context, colour, 1.5);
  }
  namesOf(rule, parts.length).forEach((name, part) => parts[part]?.length && drawName(context, name, ...parts[part][0], scale));
}

function trace(context, points) {
  context.beginPath();
  points.forEach(([x, y], index) => context[index ? "lineTo" : "moveTo"](x, y));
}

function drawName(context, name, x, y, scale) {
  context.font = "500 11px system-ui, sans-serif";
  const wide = context.measureText(name).width + 8;
  const left = Math.max(0, Math.min(x, scale.width - wide));
  const top = Math.max(0, Math.min(y - 16, scale.height - 16));
  context.fillStyle = "rgba(12, 16, 14, 0.7)";
  context.fillRect(left, top, wide, 16);
  context.fillStyle = "#fff";
  context.fillText(name, left + 4, top + 12);
}

/** The way of each track's foot point in the last seconds, from the messages up to this pts. */
export function tailsOf(frames, pts) {
  const tails = new Map();
  for (let index = frames.length - 1; index >= 0 && frames[index].pts > pts - TAIL_NS; index -= 1) {
    if (frames[index].pts > pts + 2e6) continue;
    for (const { track_id: id, box, label } of frames[index].detections) {
      if (id == null) continue;
      if (!tails.has(id)) tails.set(id, { label, points: [] });
      tails.get(id).points.push([(box[0] + box[2]) / 2, box[3]]);
    }
  }
  return [...tails.values()];
}
