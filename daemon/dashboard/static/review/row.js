// The rows of the review: a card, or a group of cards that is shown as one.
import { html, useRef } from "../html.js";
import * as format from "../format.js";
import { daemons } from "../model.js";
import { Icon } from "../parts.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { hasClip, thumbOf } from "./clip.js";
import { leadOf, rulesOf } from "./grouping.js";
import { markOf } from "./seen.js";
import { playSoon, stop, Thumb } from "./thumb.js";
import { dayOf, groupWords, timeWords, wordsOf } from "./words.js";

function itemOf(cards, more) {
  const card = cards.find((one) => leadOf(one).has_snapshot) ?? cards[0];
  const lead = leadOf(card);
  const events = cards.flatMap((one) => one.events);
  return { key: `${more.isPart ? "card" : "row"} ${lead.id}`, cards, card, events, lead, ...more };
}

/**
 * What rows are made of: groups, each followed by its cards where it is open.
 * @returns [{key, cards, card (with the picture), events, lead (the event that stands for all), group, isOpen, isPart}]
 */
export function itemsOf(groups, open) {
  const items = [];
  for (const group of groups) {
    const isOpen = group.cards.length > 1 && group.cards.some((card) => open.has(card.key));
    items.push(itemOf(group.cards, { group, isOpen }));
    if (isOpen) for (const card of group.cards) items.push(itemOf([card], { group, isPart: true }));
  }
  return items;
}

/** Each card by itself, in the order of the rows. */
export const cardsOf = (groups) => groups.flatMap((group) => group.cards.map((card) => itemOf([card], { group, isPart: true })));

const spanOf = ({ cards }) => ({ begin: cards[0].begin, end: Math.max(...cards.map((card) => card.end)) });
const sayItem = ({ cards, card, lead }) => (cards.length > 1 ? groupWords({ cards, source: lead.source }) : wordsOf(card));

/** All that the looks of a row depend on: rows of which it is the same need not be drawn again. */
const signOf = (item, isCurrent, href) => [item.events.length, item.events.filter(markOf).length, item.isOpen, isCurrent, href,
  item.cards.length, thumbOf(item.lead), hasClip(item.lead), item.events[item.events.length - 1].id, markOf(item.events[item.events.length - 1])?.by].join(" ");

/** @param does {hrefOf, pick, setGroup, mark (absent where one may not), leave} */
function Row({ item, href, isCurrent, does }) {
  const { key, lead, cards, events, isOpen, isPart } = item;
  const words = sayItem(item);
  const isSeen = events.every(markOf);
  const by = isSeen ? markOf(events[events.length - 1]) : null;
  const span = spanOf(item);
  const kinds = [...new Set(events.map((event) => event.kind))];
  const rules = cards.length > 1 ? rulesOf(cards).join(", ") : "";
  const rest = () => playSoon(key, lead);
  return html`<li class=${`event ${isPart ? "is-part" : ""} ${isSeen ? "is-seen" : ""} ${isCurrent ? "is-current" : ""}`}
      data-events=${events.map((event) => event.id).join(" ")}>
    <a class="event-main" data-key=${key} href=${href} aria-label=${t.events.open(`${words}, ${timeWords(span)}`)}
      onFocus=${() => (does.pick(item), rest())} onBlur=${stop} onMouseEnter=${rest} onMouseLeave=${stop}>
      <${Thumb} key=${lead.id} place=${key} event=${lead} />
      <span class="event-text"><span class="event-words">${words}</span>
        <span class="event-more">${cards.length === 1 && html`<span class="event-source">${lead.source}</span>`}
          ${cards.length === 1 && kinds.map((kind) => html`<span class=${`kind kind-${kind}`}>${t.events.kinds[kind] ?? kind}</span>`)}
          ${rules && html`<span>${rules}</span>`}
          ${by && html`<span class="event-by">${t.review.seenBy(by.by, format.timeOf(by.at / 1e9))}</span>`}</span></span>
      <time datetime=${format.isoOf(span.begin / 1e9)} title=${format.dateOf(span.begin / 1e9)}>${timeWords(span)}</time>
    </a>
    ${!isPart && cards.length > 1 && html`<button type="button" class="plain icon-only" aria-expanded=${isOpen ? "true" : "false"}
      aria-label=${isOpen ? t.review.collapse : t.review.expand(cards.length)} onClick=${() => does.setGroup(item, !isOpen)}>
      <${Icon} name=${isOpen ? "less" : "more"} /></button>`}
    ${does.mark && html`<button type="button" class="plain icon-only seen-button" aria-pressed=${isSeen ? "true" : "false"}
      aria-label=${`${t.review.seen}: ${words}`} title=${isSeen ? t.review.unmark : t.review.markSeen} onClick=${() => does.mark(item, !isSeen)}>
      <${Icon} name="check" /></button>`}
  </li>`;
}

/** All rows, under the date of their day. */
export function Rows({ items, current, element, does }) {
  useStore(daemons); // which of them give pictures
  const drawn = useRef(new Map()); // by key: {sign, row}
  const before = drawn.current;
  drawn.current = new Map();
  const days = []; // [words, rows]
  for (const item of items) {
    const [href, isCurrent] = [does.hrefOf(item.lead), item.key === current];
    const sign = signOf(item, isCurrent, href);
    const known = before.get(item.key);
    const row = known?.sign === sign ? known.row : html`<${Row} key=${item.key} item=${item} href=${href} isCurrent=${isCurrent} does=${does} />`;
    drawn.current.set(item.key, { sign, row });
    const day = dayOf(item.cards[0].begin);
    if (days[days.length - 1]?.[0] !== day) days.push([day, []]);
    days[days.length - 1][1].push(row);
  }
  return html`<div class="days" ref=${element} onMouseLeave=${does.leave}>${days.map(([day, rows], n) => html`
    <section key=${`${day} ${n > 0 && days.findIndex((other) => other[0] === day) < n ? n : ""}`} aria-label=${day}>
      <h2 class="day">${day}</h2><ul class="event-list" aria-label=${`${t.events.title}, ${day}`}>${rows}</ul></section>`)}</div>`;
}
