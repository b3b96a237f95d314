// One event in a list.
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

export function EventRow({ event, href = linkOf(event), short = false, fresh = false }) {
  const words = t.events.say(event);
  return html`<li class=${`event ${fresh ? "is-fresh" : ""}`}>
    <a href=${href} aria-label=${t.events.open(words)}>
      ${!short && (event.has_snapshot
        ? html`<${EventPicture} event=${event} name="event-picture" words="" />`
        : html`<span class="event-picture is-empty" aria-hidden="true"></span>`)}
      <span class=${`kind kind-${event.kind}`}>${t.events.kinds[event.kind] ?? event.kind}</span>
      <span class="event-words">${words}</span>
      ${!short && html`<span class="event-source">${event.source}</span>`}
      <time datetime=${format.isoOf(event.at / 1e9)} title=${format.dateOf(event.at / 1e9)}>${format.timeOf(event.at / 1e9)}</time>
    </a></li>`;
}
