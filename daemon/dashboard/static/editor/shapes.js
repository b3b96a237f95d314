// Rules as the editor holds them: {type, name, parts: [[[x, y], ...], ...], rest}, with shares of the picture. Every
// operation returns a new rule. `problemOf` says why the daemon would refuse one.
import { t } from "../texts.js";
import { area, edgesOf, length, nearestOn, touchingEdges } from "./geometry.js";

const SMALLEST = 1e-6;
const round = (value) => Math.round(Math.min(1, Math.max(0, value)) * 1e4) / 1e4;
export const rounded = ([x, y]) => [round(x), round(y)];
export const isClosed = (rule) => rule.type === "zone";
export const leastPoints = (rule) => (isClosed(rule) ? 3 : 2);

export function fromConfig(config) {
  const { points, polygons, lines, frame_size: size, ...rest } = config;
  const [w, h] = size ?? [1, 1];
  const parts = points ? [points] : (polygons ?? lines ?? []);
  // A polygon may end with its first point; here it does not.
  const open = (list) => (config.type === "zone" && list.length > 3 && String(list[0]) === String(list.at(-1)) ? list.slice(0, -1) : list);
  return { type: config.type, name: config.name, rest, wasPixels: Boolean(size), parts: parts.map((list) => open(list.map(([x, y]) => rounded([x / w, y / h])))) };
}

export function toConfig(rule) {
  const { type, name, parts, rest } = rule;
  const config = { ...Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null)), type, name };
  if (type === "zone") config[parts.length === 1 ? "points" : "polygons"] = parts.length === 1 ? parts[0] : parts;
  if (type === "line") config.points = parts[0];
  if (type === "gate") config.lines = parts;
  return config;
}

function problemOfPart(rule, points) {
  const least = leastPoints(rule);
  if (points.length < least) return t.rules.few(least);
  if (!isClosed(rule)) return length(points) < SMALLEST ? t.rules.short : null;
  if (new Set(points.map(String)).size < points.length) return t.rules.twice;
  const edges = touchingEdges(points);
  if (edges) return t.rules.crosses(edges[0] + 1, edges[1] + 1);
  return area(points) < SMALLEST ? t.rules.flat : null;
}

/** Why the daemon would refuse this rule, or null. */
export function problemOf(rule) {
  if (!/^[A-Za-z0-9_.-]+$/.test(rule.name)) return t.rules.badName;
  if (rule.type === "gate" && rule.parts.length !== 2) return t.rules.gateLines;
  for (const points of rule.parts) {
    const problem = problemOfPart(rule, points);
    if (problem) return problem;
  }
  return null;
}

export function problemOfAll(rules) {
  if (rules.length > 64) return t.rules.tooMany;
  const names = rules.map((rule) => rule.name.toLowerCase());
  if (new Set(names).size < names.length) return t.rules.usedName;
  for (const rule of rules) {
    const problem = problemOf(rule);
    if (problem) return `${rule.name}: ${problem}`;
  }
  return null;
}

const withPart = (rule, part, points) => ({ ...rule, parts: rule.parts.map((old, index) => (index === part ? points : old)) });

export const movePoint = (rule, part, index, to) =>
  withPart(rule, part, rule.parts[part].map((point, i) => (i === index ? rounded(to) : point)));

/** Move by a step, as far as the picture goes, so that the shape keeps its form. */
function shift(points, [dx, dy]) {
  const clamp = (step, values) => Math.max(-Math.min(...values), Math.min(1 - Math.max(...values), step));
  const [x, y] = [clamp(dx, points.map((p) => p[0])), clamp(dy, points.map((p) => p[1]))];
  return points.map(([px, py]) => rounded([px + x, py + y]));
}

export function moveEdge(rule, part, index, step) {
  const points = rule.parts[part];
  const other = (index + 1) % points.length;
  const [a, b] = shift([points[index], points[other]], step);
  return withPart(rule, part, points.map((point, i) => (i === index ? a : i === other ? b : point)));
}

export const movePart = (rule, part, step) => withPart(rule, part, shift(rule.parts[part], step));

export function moveAll(rule, step) {
  const moved = shift(rule.parts.flat(), step);
  let at = 0;
  return { ...rule, parts: rule.parts.map((points) => moved.slice(at, (at += points.length))) };
}

/** Add a point on the edge that begins at `index`: at a place, or in its middle. */
export function addPoint(rule, part, index, at = null) {
  const points = rule.parts[part];
  const [a, b] = [points[index], points[(index + 1) % points.length]];
  const place = at ?? (index === points.length - 1 && !isClosed(rule) ? [a[0] + 0.02, a[1] + 0.02] : [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]);
  return withPart(rule, part, [...points.slice(0, index + 1), rounded(place), ...points.slice(index + 1)]);
}

/** Without a point, or null if too few would be left. */
export function deletePoint(rule, part, index) {
  const points = rule.parts[part];
  return points.length > leastPoints(rule) ? withPart(rule, part, points.filter((_, i) => i !== index)) : null;
}

export const reverse = (rule) => ({ ...rule, parts: rule.type === "gate" ? [...rule.parts].reverse() : rule.parts.map((points) => [...points].reverse()) });

/**
 * The place to snap to, or the place itself: points of other shapes and corners first, then edges and borders.
 * @param skip {rule, part, index}: the point that moves
 * @param reach [x, y] in shares
 */
export function snapped(place, rules, skip, [reachX, reachY]) {
  const borders = edgesOf([[0, 0], [1, 0], [1, 1], [0, 1]], true);
  const far = ([x, y]) => Math.hypot((x - place[0]) / reachX, (y - place[1]) / reachY);
  let best = null;
  const consider = (at, bias) => {
    const distance = far(at);
    if (distance <= 1 && (!best || distance + bias < best.value)) best = { at, value: distance + bias };
  };
  rules.forEach((rule, number) => rule.parts.forEach((points, part) => {
    const own = skip && skip.rule === number && skip.part === part;
    points.forEach((point, index) => own && index === skip.index ? null : consider(point, -1));
    if (!own) edgesOf(points, isClosed(rule)).forEach((edge) => consider(nearestOn(edge, place), 0));
  }));
  [[0, 0], [1, 0], [1, 1], [0, 1]].forEach((corner) => consider(corner, -1));
  borders.forEach((edge) => consider(nearestOn(edge, place), 0));
  return best ? best.at : place;
}

/** The names of rules of a configuration that were added, changed and removed. */
export function differences(before, after) {
  const [old, now] = [before, after].map((rules) => new Map(rules.map((rule) => [rule.name, JSON.stringify(rule)])));
  return {
    added: [...now.keys()].filter((name) => !old.has(name)),
    changed: [...now.keys()].filter((name) => old.has(name) && old.get(name) !== now.get(name)),
    removed: [...old.keys()].filter((name) => !now.has(name)),
  };
}

/** States with undo and redo, in the order of time. */
export class History {
  constructor(first) {
    Object.assign(this, { past: [], now: first, future: [] });
  }

  commit(next) {
    if (next === this.now) return;
    this.past = [...this.past.slice(-199), this.now];
    Object.assign(this, { now: next, future: [] });
  }

  undo() {
    if (!this.past.length) return;
    this.future.push(this.now);
    this.now = this.past.pop();
  }

  redo() {
    if (!this.future.length) return;
    this.past.push(this.now);
    this.now = this.future.pop();
  }
}
