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
const QUARTER_NS = 900e9; // all zones differ by multiples of it
const MOST_DAYS = 5000;
const days = new Map();

/** The date of a time, UTC ns. A thousand rows ask for it each time that they are drawn. */
export function dayOf(ns) {
  const quarter = Math.floor(ns / QUARTER_NS);
  if (days.size > MOST_DAYS) days.clear();
  if (!days.has(quarter)) days.set(quarter, day.format(new Date(ns / 1e6)));
  return days.get(quarter);
}

/** The time zone of all that is shown, such as "Europe/Berlin (UTC+1)". */
export function zoneWords() {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" }).formatToParts(new Date());
  const offset = parts.find((part) => part.type === "timeZoneName")?.value.replace("GMT", "UTC");
  return offset && offset !== timeZone ? `${timeZone} (${offset})` : timeZone;
}
