// What a rule would have counted on the tracks of the last minute. It follows the daemon's rules for times and sides;
// it has points a tenth of a second apart and no heights of boxes, so a line's band is left out.
import { crossing, edgesOf, isInside } from "./geometry.js";

/** How many tracks would have entered: they stay within for enter_s, and are out for exit_s before they enter again. */
function entered(points, parts, enterS, exitS) {
  let [visits, inVisit, within, since] = [0, false, false, 0];
  points.forEach(([at, x, y], index) => {
    const now = parts.some((part) => isInside([x, y], part));
    if (index === 0 || now !== within) [within, since] = [now, at];
    if (!inVisit && within && at - since >= enterS) [inVisit, visits] = [true, visits + 1];
    if (inVisit && !within && at - since >= exitS) inVisit = false;
  });
  return visits;
}

/** Crossings of one line in order: [[time, 1 or -1], ...]. */
function crossings(points, line) {
  const edges = edgesOf(line, false);
  const found = [];
  for (let index = 1; index < points.length; index += 1) {
    const [[, ...p], [at, ...q]] = [points[index - 1], points[index]];
    const net = edges.reduce((sum, edge) => sum + crossing(p, q, edge), 0);
    if (net) found.push([at, Math.sign(net)]);
  }
  return found;
}

/** Passes of two lines in order: 1 from the first to the second, -1 the other way. */
function passes(points, [first, second]) {
  const found = [...crossings(points, first).map(([at]) => [at, 0]), ...crossings(points, second).map(([at]) => [at, 1])].sort((a, b) => a[0] - b[0]);
  return found.slice(1).map(([, line], index) => line - found[index][1]).filter(Boolean);
}

/**
 * @param rule as the editor holds it
 * @param tracks [{track, label, points: [[s, x, y], ...]}]
 * @returns {{entered: number} | {forward: number, backward: number}}
 */
export function wouldCount(rule, tracks) {
  const { labels, enter_s: enterS = 0.3, exit_s: exitS = 1, cooldown_s: cooldownS = 0 } = rule.rest;
  const wanted = tracks.filter((track) => !labels || labels.includes(track.label));
  if (rule.type === "zone") {
    return { entered: wanted.reduce((sum, { points }) => sum + entered(points, rule.parts, enterS, exitS), 0) };
  }
  const signs = wanted.flatMap(({ points }) => {
    if (rule.type === "gate") return passes(points, rule.parts);
    let last = -Infinity;
    return crossings(points, rule.parts[0]).filter(([at]) => at - last >= cooldownS && (last = at)).map(([, sign]) => sign);
  });
  return { forward: signs.filter((sign) => sign > 0).length, backward: signs.filter((sign) => sign < 0).length };
}
