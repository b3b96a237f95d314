// One event in a list.
import { at } from "./api.js";
import * as format from "./format.js";
import { html } from "./html.js";
import { t } from "./texts.js";

export const linkOf = (event) => `/events?event=${encodeURIComponent(event.daemon)}/${encodeURIComponent(event.id)}`;
export const pictureOf = (event) => `/api/events/${at(event.daemon, event.id)}/snapshot`;

export function EventRow({ event, short = false, fresh = false }) {
  const words = t.events.say(event);
  return html`<li class=${`event ${fresh ? "is-fresh" : ""}`}>
    <a href=${linkOf(event)} aria-label=${t.events.open(words)}>
      ${!short && (event.has_snapshot
        ? html`<img class="event-picture" src=${pictureOf(event)} alt="" loading="lazy" />`
        : html`<span class="event-picture is-empty" aria-hidden="true"></span>`)}
      <span class=${`kind kind-${event.kind}`}>${t.events.kinds[event.kind] ?? event.kind}</span>
      <span class="event-words">${words}</span>
      ${!short && html`<span class="event-source">${event.source}</span>`}
      <time datetime=${format.isoOf(event.at / 1e9)} title=${format.dateOf(event.at / 1e9)}>${format.timeOf(event.at / 1e9)}</time>
    </a></li>`;
}
