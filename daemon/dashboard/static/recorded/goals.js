// Which fragments a player needs: for a picture that is asked for, and for what follows the one that is shown.
import { pictureAt } from "./appended.js";
import { ptsAt } from "./fragments.js";

const BATCH_S = 4;
const BATCH_BYTES = 3 << 20;

/**
 * @typedef {object} Goal a picture: that of a moment `ms`, or the key picture before it (`isKey`); the one of the number
 *   `index` in `fragment`; the nearest of the fragment after (1) or before (-1) `beside`, by `direction`
 */

/** The fragments that must be there for a goal, the last of which has its picture; null if there is none. */
export async function groupOf(fragments, goal) {
  let fragment = goal.fragment ?? null;
  if (goal.beside) fragment = await (goal.direction > 0 ? fragments.after(goal.beside) : fragments.before(goal.beside));
  else if (!fragment) fragment = await fragments.at(goal.ms);
  if (!fragment) return null;
  if (goal.ms !== undefined && !goal.isKey) fragment = await behind(fragments, fragment, ptsAt(fragment, goal.ms));
  const group = await fragments.group(fragment);
  return group && goal.isKey ? group.slice(0, 1) : group;
}

/** A picture may be stored in the fragment behind the one in whose time it is shown. */
async function behind(fragments, fragment, pts) {
  const next = await fragments.after(fragment);
  return next && !next.key && next.file.key === fragment.file.key && next.pts <= pts ? next : fragment;
}

/** Fragments that follow a piece, side by side in one file. Over a gap, or to another file, from a key picture on. */
export async function batchAfter(fragments, piece, ahead) {
  const batch = [];
  for (let one = await fragments.after(piece.fragment); one; one = await fragments.after(one)) {
    const before = batch[batch.length - 1] ?? piece.fragment;
    const isNext = before.file.key === one.file.key && before.offset + before.size === one.offset;
    if (batch.length && !isNext) break;
    if (!isNext && !one.key) continue;
    if (!batch.length && one.begin - piece.fragment.end > ahead * 1000) break;
    batch.push(one);
    const bytes = one.offset + one.size - batch[0].offset;
    if (one.end - batch[0].begin >= BATCH_S * 1000 || bytes > BATCH_BYTES) break;
  }
  return batch;
}

/** The picture of a goal, by its number in the piece that has it. */
export function indexOf(piece, goal) {
  if (goal.index !== undefined) return Math.min(goal.index, piece.pictures.length - 1);
  if (goal.beside) return goal.direction > 0 ? 0 : piece.pictures.length - 1;
  return goal.isKey ? 0 : pictureAt(piece, ptsAt(piece.fragment, goal.ms));
}
