// One event: its address, its picture, and a short row.
import { at } from "./api.js";
import * as format from "./format.js";
import { html } from "./html.js";
import { keyOf, sources } from "./model.js";
import { ratioOf } from "./picture.js";
import { t } from "./texts.js";

export const linkOf = (event) => `/events?event=${encodeURIComponent(event.daemon)}/${encodeURIComponent(event.id)}`;
export const pictureOf = (event) => `/api/events/${at(event.daemon, event.id)}/snapshot`;

/**
 * The picture of an event. Its pixels are those of the camera: where they are not square it is stretched to its shape.
 * @param name of its class
 */
export function EventPicture({ event, name, words }) {
  const row = sources.value.get(keyOf(event.daemon, event.source));
  const isStretched = row && (row.pixel_aspect ?? 1) !== 1 && ratioOf(row);
  return html`<img class=${`${name} ${isStretched ? "is-stretched" : ""}`} src=${pictureOf(event)} alt=${words} loading="lazy"
    style=${isStretched ? { "--ratio": ratioOf(row) } : null} />`;
}

export function EventRow({ event }) {
  const words = t.events.say(event);
  return html`<li class="event">
    <a href=${linkOf(event)} aria-label=${t.events.open(words)}>
      <span class=${`kind kind-${event.kind}`}>${t.events.kinds[event.kind] ?? event.kind}</span>
      <span class="event-words">${words}</span>
      <time datetime=${format.isoOf(event.at / 1e9)} title=${format.dateOf(event.at / 1e9)}>${format.timeOf(event.at / 1e9)}</time>
    </a></li>`;
}
