// Cards and groups in words.
import * as format from "../format.js";
import { t } from "../texts.js";
import { labelsOf } from "./grouping.js";

/** What happened to a card, each thing once, in the order of its first time. */
function phrasesOf(card) {
  const found = new Map();
  for (const event of card.events) {
    const words = t.review.phrase(event);
    found.set(words, (found.get(words) ?? 0) + 1);
  }
  return [...found].map(([words, times]) => t.review.times(words, times));
}

export const wordsOf = (card) =>
  t.review.card(card.track === null ? null : t.review.what(card.label, card.track), phrasesOf(card));

export const groupWords = (group) =>
  t.review.group(labelsOf(group.cards), group.cards.filter((card) => card.track === null).length, group.source);

/** Its time of day: that of its first and its last event. */
export const timeWords = ({ begin, end }) => t.review.range(format.timeOf(begin / 1e9), format.timeOf(end / 1e9));

const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
export const dayOf = (ns) => day.format(new Date(ns / 1e6));

/** The time zone of all that is shown, such as "Europe/Berlin (UTC+1)". */
export function zoneWords(date = new Date()) {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" }).formatToParts(date);
  const offset = parts.find((part) => part.type === "timeZoneName")?.value.replace("GMT", "UTC");
  return offset && offset !== timeZone ? `${timeZone} (${offset})` : timeZone;
}
