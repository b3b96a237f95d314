// Which way a line or a gate counts as forward: over a line from its left to its right, as seen from its first point
// towards its second; through a gate from its first line to its second, however each of them is drawn.

const LONG = 26; // of a line's arrow, in pixels of the screen
const HEAD = 8;
const SHORTEST = 6; // of a gate's arrow: the lines lie on each other, and nothing can be shown

const middleOf = (points) => [0, 1].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length);

function acrossLine(points, pixel) {
  for (let index = 1; index < points.length; index += 1) {
    const [[ax, ay], [bx, by]] = [points[index - 1], points[index]];
    const far = Math.hypot(bx - ax, by - ay);
    if (!far) continue; // two points at one place have no sides
    const [mx, my] = [(ax + bx) / 2, (ay + by) / 2];
    const long = LONG * pixel;
    return [[mx, my], [mx - ((by - ay) / far) * long, my + ((bx - ax) / far) * long]];
  }
  return null;
}

function throughGate(lines, pixel) {
  if (lines.length !== 2 || lines.some((points) => !points.length)) return null;
  const [from, to] = lines.map(middleOf);
  return Math.hypot(to[0] - from[0], to[1] - from[1]) < SHORTEST * pixel ? null : [from, to];
}

/**
 * The arrow of a rule as strokes, each a list of places: its shaft and the two sides of its head. None of a zone.
 * @param parts its lists of points, y downwards, in units that are as long across as down
 * @param pixel length of a pixel of the screen in these units
 */
export function arrowOf(type, parts, pixel = 1) {
  const shaft = type === "line" ? acrossLine(parts[0] ?? [], pixel) : type === "gate" ? throughGate(parts, pixel) : null;
  if (!shaft) return [];
  const [[fx, fy], [tx, ty]] = shaft;
  const far = Math.hypot(tx - fx, ty - fy);
  const [dx, dy] = [(HEAD * pixel * (tx - fx)) / far, (HEAD * pixel * (ty - fy)) / far];
  return [shaft, [[tx - dx - dy * 0.8, ty - dy + dx * 0.8], [tx, ty], [tx - dx + dy * 0.8, ty - dy - dx * 0.8]]];
}

/** The name that stands at each part of a rule: the lines of a gate have an order. */
export const namesOf = (rule, count) => (rule.type === "gate" ? Array.from({ length: count }, (_, n) => `${rule.name} ${n + 1}`) : [rule.name]);
