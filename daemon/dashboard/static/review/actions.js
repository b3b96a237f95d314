// What can be done with the events of a review, and taken back.
import { linkOf } from "../event_row.js";
import * as format from "../format.js";
import { useRef, useState } from "../html.js";
import { mayChange } from "../model.js";
import { t } from "../texts.js";
import { clipOf, hasClip, keep, release, whyNoClip } from "./clip.js";
import { markOf, order } from "./seen.js";

const MOST_UNDONE = 200;

/**
 * What is done is remembered, so that it can be taken back, and said.
 * @returns {{said, say, mark, markOne, undo, keep, download, copy}}
 */
export function useActions() {
  const [said, say] = useState("");
  const done = useRef([]); // functions that take it back
  const remember = (undo) => (done.current = [...done.current.slice(1 - MOST_UNDONE), undo]);

  /** Mark those that are not yet marked, or take their marks back. */
  const mark = (events, isSeen = true) => {
    if (!mayChange()) return say(t.review.said.viewOnly);
    const rows = events.filter((event) => Boolean(markOf(event)) !== isSeen);
    if (!rows.length) return undefined;
    order(isSeen ? "POST" : "DELETE", rows);
    remember(() => order(isSeen ? "DELETE" : "POST", rows));
    return say(isSeen ? t.review.said.seen(rows.length) : t.review.said.unseen(rows.length));
  };
  const actions = {
    said, say, mark,
    markOne: (event, isSeen) => mark([event], isSeen),
    undo: async () => {
      const undo = done.current.pop();
      if (!undo) return say(t.review.said.nothing);
      say("");
      return undo();
    },
    keep: async (event, card) => {
      if (!mayChange()) return say(t.review.said.viewOnly);
      if (!hasClip(event)) return say(whyNoClip(event));
      try {
        const { from, to, locks } = await keep(event, card ?? { begin: event.at, end: event.confirmed_at });
        remember(() => release(locks).then(() => say(t.review.said.released), (error) => say(t.review.said.failed(error.message))));
        return say(t.review.said.kept(format.timeOf(from / 1e9), format.timeOf(to / 1e9), event.source));
      } catch (error) {
        return say(t.review.said.failed(error.message));
      }
    },
    download: (event) => {
      if (!hasClip(event)) return say(whyNoClip(event));
      const link = Object.assign(document.createElement("a"), { href: clipOf(event), download: "" });
      link.click();
      return undefined;
    },
    copy: (event) => {
      const text = new URL(linkOf(event), location.href).href;
      return navigator.clipboard?.writeText(text).then(() => say(t.events.copied), () => say(t.events.copyFailed)) ?? say(t.events.copyFailed);
    },
  };
  return actions;
}
