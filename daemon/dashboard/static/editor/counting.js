// What a rule would have counted on the tracks of the last minute. It does what the daemon does, with fewer points: one
// in 0.15 s. The daemon also completes boxes that the picture's edge cuts or that something hides, and knows times of day.
import { crossing, crossingShare, edgesOf, isInside, squareDistance } from "./geometry.js";

const LOWER = { top: 0, center: 0.5, bottom: 1 }; // share of the lower edge in an anchor's height

/** Where the rule's anchor was: [{at, place, height, area}], in units of the picture's height. */
export function anchored(points, anchor, aspect) {
  const share = LOWER[anchor ?? "bottom"];
  return points.map(([at, x, bottom, top = bottom, width = 0]) => ({
    at,
    place: [x * aspect, (1 - share) * top + share * bottom],
    height: bottom - top,
    area: Math.min(1, Math.max(0, width * (bottom - top))),
  }));
}

/** How many stays: within for enter_s, and out for exit_s before the next one. */
function stays(points, outlines, { enter_s: enterS = 0.3, exit_s: exitS = 1 }, wants) {
  const flags = outlines.map((outline) => isInside(points[0].place, outline));
  let [count, stay, within, since] = [0, false, flags.includes(true), points[0].at];
  const confirm = (until, point) => {
    if (!within) stay &&= until - since < exitS;
    else if (!stay && until - since >= enterS && wants(point)) [stay, count] = [true, count + 1];
  };
  points.forEach((point, index) => {
    const before = points[Math.max(0, index - 1)];
    const path = [before.place, point.place];
    const turns = outlines.flatMap((outline, number) => edgesOf(outline, true).filter((edge) => crossing(...path, edge)).map((edge) => [crossingShare(...path, edge), number]));
    for (const [share, number] of turns.sort((a, b) => a[0] - b[0])) {
      flags[number] = !flags[number];
      if (flags.includes(true) === within) continue;
      const at = before.at + share * (point.at - before.at);
      confirm(at, point);
      [within, since] = [!within, at];
    }
    confirm(point.at, point);
  });
  return count;
}

/** Crossings of one line in order: [{at, sign, point}, ...]. They count outside of the band, on the other side than before. */
function crossings(points, line, { band = 0.1, confirm_s: confirmS = 0 }) {
  const edges = edgesOf(line, false);
  const found = [];
  let [settled, net, since] = [false, 0, 0];
  points.forEach((point, index) => {
    const before = points[Math.max(0, index - 1)];
    const path = [before.place, point.place];
    const turns = edges.map((edge) => [crossing(...path, edge), edge]).filter(([turn]) => turn);
    const turned = turns.reduce((sum, [turn]) => sum + turn, 0);
    if (turned) {
      const share = Math.max(...turns.map(([, edge]) => crossingShare(...path, edge)));
      if (!net) since = before.at + share * (point.at - before.at);
      net += turned;
    }
    if (Math.min(...edges.map((edge) => squareDistance(point.place, edge))) <= (band * point.height) ** 2) return;
    if (!settled) [settled, net] = [true, 0];
    if (!net || point.at - since < confirmS) return;
    found.push({ at: since, sign: Math.sign(net), point, seen: index });
    net = 0;
  });
  return found;
}

/** Passes of two lines in order; sign is 1 from the first to the second. */
function passes(points, lines, settings) {
  const [one, other] = lines.map((line) => line.at(-1).map((value, axis) => value - line[0][axis]));
  const alike = one[0] * other[0] + one[1] * other[1] >= 0;
  const all = lines.flatMap((line, number) => crossings(points, line, settings).map((row) => ({ ...row, number, sign: row.sign * (number && !alike ? -1 : 1) })));
  const found = [];
  let pending = null;
  for (const row of all.sort((a, b) => a.seen - b.seen || a.at - b.at)) {
    if (!pending || pending.sign !== row.sign) pending = pending?.number === row.number ? null : row;
    else if (pending.number !== row.number) {
      pending = null;
      found.push({ ...row, sign: row.number ? 1 : -1 });
    }
  }
  return found;
}

/** The wanted ones that do not follow another within the rule's cooldown. */
function counted(rows, { cooldown_s: cooldownS = 0 }, wants) {
  let last = -Infinity;
  return rows.filter(({ at, point }) => {
    if (!wants(point) || at - last < cooldownS) return false;
    last = at;
    return true;
  });
}

/**
 * @param rule as the editor holds it
 * @param tracks [{track, label, points: [[s, centre x, lower y, upper y, width], ...]}], shares of the picture
 * @param aspect the picture's width over its height, in its own pixels
 * @returns {{entered: number} | {forward: number, backward: number}}
 */
export function wouldCount(rule, tracks, aspect = 1) {
  const { labels, anchor, min_area: least = 0, max_area: most = 1 } = rule.rest;
  const wants = ({ area }) => least <= area && area <= most;
  const outlines = rule.parts.map((points) => points.map(([x, y]) => [x * aspect, y]));
  const paths = tracks.filter((track) => !labels || labels.includes(track.label)).map(({ points }) => anchored(points, anchor, aspect));
  if (rule.type === "zone") return { entered: paths.reduce((sum, points) => sum + stays(points, outlines, rule.rest, wants), 0) };
  const signs = paths.flatMap((points) => {
    const rows = rule.type === "gate" ? passes(points, outlines, rule.rest) : crossings(points, outlines[0], rule.rest);
    return counted(rows, rule.rest, wants).map(({ sign }) => sign);
  });
  return { forward: signs.filter((sign) => sign > 0).length, backward: signs.filter((sign) => sign < 0).length };
}
