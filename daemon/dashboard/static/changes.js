// Changes of a source's configuration, which somebody else may change at the same time.
import { at, get, sendIf } from "./api.js";

const TRIES = 4;
const CHANGED = 412;

/** @typedef {{config: object, tag: string}} Base a configuration as it was loaded, and its tag */

export const same = (one, other) => JSON.stringify(one ?? null) === JSON.stringify(other ?? null);

const pathOf = (daemon, id) => `/api/sources/${at(daemon, id)}`;

/** @returns {Base} */
export async function load(daemon, id) {
  const { config, tag } = await get(`${pathOf(daemon, id)}/config`);
  return { config, tag };
}

/** Somebody has changed what is to be changed. */
export class Conflict extends Error {
  /**
   * @param keys of the configuration
   * @param {Base} theirs as it is now
   */
  constructor(keys, theirs) {
    super(`conflict: ${keys.join(", ")}`);
    Object.assign(this, { keys, theirs });
  }
}

/**
 * Change some keys of a source. What others have changed beside them stays.
 * @param {Base} base what the change was made from
 * @returns {Base} as it is then
 * @throws {Conflict} one of these keys is not what it was
 */
export async function change(daemon, id, base, content) {
  let { tag } = base;
  for (let left = TRIES; ; left -= 1) {
    try {
      const answer = await sendIf("PATCH", pathOf(daemon, id), content, tag);
      return { config: answer.content.config, tag: answer.tag };
    } catch (error) {
      if (error.status !== CHANGED) throw error;
    }
    const theirs = await load(daemon, id);
    const keys = Object.keys(content).filter((key) => !same(theirs.config[key], base.config[key]) && !same(theirs.config[key], content[key]));
    if (keys.length || !left) throw new Conflict(keys, theirs);
    tag = theirs.tag;
  }
}
