// Plane geometry of rules, with the daemon's signs: x to the right, y downwards, and as seen from a line's first point
// towards its second, a point with a positive orientation lies on the right.

export const orientation = ([ax, ay], [bx, by], [cx, cy]) => Math.sign((bx - ax) * (cy - ay) - (by - ay) * (cx - ax));

export function edgesOf(points, closed) {
  const found = points.slice(1).map((point, index) => [points[index], point]);
  if (closed && points.length > 2) found.push([points[points.length - 1], points[0]]);
  return found;
}

const within = ([[ax, ay], [bx, by]], [x, y]) =>
  Math.min(ax, bx) <= x && x <= Math.max(ax, bx) && Math.min(ay, by) <= y && y <= Math.max(ay, by);

function touch(one, other) {
  const [c, d] = other.map((point) => orientation(...one, point));
  const [a, b] = one.map((point) => orientation(...other, point));
  if (c !== d && a !== b) return true;
  return (c === 0 && within(one, other[0])) || (d === 0 && within(one, other[1]))
    || (a === 0 && within(other, one[0])) || (b === 0 && within(other, one[1]));
}

/** Whether the second edge begins where the first ends, and goes back over it. */
function foldsBack([a, b], [c, d]) {
  if (b[0] !== c[0] || b[1] !== c[1] || orientation(a, b, d) !== 0) return false;
  return (b[0] - a[0]) * (d[0] - c[0]) + (b[1] - a[1]) * (d[1] - c[1]) < 0;
}

/** The numbers of two sides of a polygon that cross or touch, apart from neighbours at their corner; or null. */
export function touchingEdges(points) {
  const edges = edgesOf(points, true).filter(([a, b]) => a[0] !== b[0] || a[1] !== b[1]);
  for (let first = 0; first < edges.length; first += 1) {
    for (let second = first + 1; second < edges.length; second += 1) {
      const neighbours = second === first + 1 || (first === 0 && second === edges.length - 1);
      const bad = neighbours
        ? foldsBack(edges[first], edges[second]) || foldsBack(edges[second], edges[first])
        : touch(edges[first], edges[second]);
      if (bad) return [first, second];
    }
  }
  return null;
}

export function isInside([x, y], points) {
  let inside = false;
  for (const [a, b] of edgesOf(points, true)) {
    if (a[1] > y === b[1] > y) continue;
    const side = orientation(a, b, [x, y]);
    if (b[1] > a[1] ? side > 0 : side < 0) inside = !inside;
  }
  return inside;
}

/** The side on which a point of the edge's line counts. */
const sideOnEdge = ([[ax, ay], [bx, by]]) => (ay !== by ? (by < ay ? 1 : -1) : bx > ax ? 1 : -1);

/** 1 if the path from p to q crosses the edge from its left to its right, -1 from right to left, otherwise 0. */
export function crossing(p, q, edge) {
  const [a, b] = edge;
  const from = (orientation(a, b, p) || sideOnEdge(edge)) > 0;
  const to = (orientation(a, b, q) || sideOnEdge(edge)) > 0;
  if (from === to) return 0;
  const onPath = -sideOnEdge([p, q]);
  if ((orientation(p, q, a) || onPath) > 0 === (orientation(p, q, b) || onPath) > 0) return 0;
  return to ? 1 : -1;
}

/** The share of the path from p to q after which it meets the line of the edge. */
export function crossingShare([px, py], [qx, qy], [[ax, ay], [bx, by]]) {
  const before = (bx - ax) * (py - ay) - (by - ay) * (px - ax);
  const after = (bx - ax) * (qy - ay) - (by - ay) * (qx - ax);
  return before === after ? 1 : Math.min(1, Math.max(0, before / (before - after)));
}

export function squareDistance(point, edge) {
  const [x, y] = nearestOn(edge, point);
  return (x - point[0]) ** 2 + (y - point[1]) ** 2;
}

export function area(points) {
  return Math.abs(edgesOf(points, true).reduce((sum, [[ax, ay], [bx, by]]) => sum + ax * by - bx * ay, 0)) / 2;
}

export const length = (points) => edgesOf(points, false).reduce((sum, [a, b]) => sum + Math.hypot(a[0] - b[0], a[1] - b[1]), 0);

/** The point of the edge that is nearest. */
export function nearestOn([[ax, ay], [bx, by]], [x, y]) {
  const [dx, dy] = [bx - ax, by - ay];
  const square = dx * dx + dy * dy;
  const share = square ? Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / square)) : 0;
  return [ax + share * dx, ay + share * dy];
}
