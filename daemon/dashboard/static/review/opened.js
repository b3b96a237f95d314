// One event in a dialog: its picture or clip, what is known of it, and what can be done.
import { at } from "../api.js";
import { EventPicture } from "../event_row.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { mayChange } from "../model.js";
import { Dialog, Facts, Notice } from "../parts.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";
import { clipOf, find, hasClip, momentOf, thumbOf, whyNoClip } from "./clip.js";
import { marks, markOf } from "./seen.js";
import { Clip, toggle, usePlays, useProblem } from "./thumb.js";

export const PLACE = "opened"; // where its clip plays

/**
 * @param path DAEMON/ID
 * @param item the card that has it, if there is one
 * @param actions see `useActions`; `show` opens another event here
 */
export function Opened({ path, item, actions, onClose }) {
  const cut = path.indexOf("/");
  const [daemon, id] = [path.slice(0, cut), path.slice(cut + 1)];
  const known = item?.events.find((row) => row.id === id) ?? null;
  const [found, setFound] = useState(null);
  const [failure, setFailure] = useState(null);
  const event = known ?? (found?.id === id ? found : null);
  useEffect(() => {
    setFailure(null);
    if (event) return undefined;
    let ended = false;
    find(daemon, id).then((row) => ended || setFound({ daemon, ...row }), (error) =>
      ended || setFailure(error.status === 404 ? t.events.gone : error.message));
    return () => (ended = true);
  }, [path]);
  return html`<${Dialog} title=${event ? t.events.say(event) : t.events.details} onClose=${onClose} wide=${true}>
    <div class="opened">${failure && html`<${Notice} kind="error">${failure}<//>`}
    ${event && html`<${Details} key=${event.id} event=${event} card=${item?.card} actions=${actions} />`}</div>
  <//>`;
}

function Picture({ event }) {
  const [isPlaying, problem] = [usePlays(PLACE), useProblem(event)];
  const still = event.has_snapshot
    ? html`<${EventPicture} event=${event} name="snapshot" words=${t.events.say(event)} />`
    : thumbOf(event) ? html`<img class="snapshot" src=${thumbOf(event).replace("width=320", "width=960")} alt=${t.events.say(event)} />`
      : html`<p class="quiet">${t.events.noPicture}</p>`;
  return html`${isPlaying ? html`<div class="snapshot"><${Clip} place=${PLACE} event=${event} controls=${true} /></div>` : still}
    ${problem && html`<${Notice} kind="warning">${problem}<//>`}`;
}

function Details({ event, card, actions }) {
  useStore(marks);
  const isPlaying = usePlays(PLACE);
  const { unseen } = event;
  const mark = markOf(event);
  const why = hasClip(event) ? whyNoClip(event) : null;
  return html`
    <${Picture} event=${event} />
    <${Facts} rows=${[
      [t.events.when, html`<time datetime=${format.isoOf(event.at / 1e9)}>${format.dateOf(event.at / 1e9)}</time>`],
      [t.events.camera, html`<a href=${`/camera/${at(event.daemon, event.source)}`}>${event.source}</a>`],
      [t.events.daemon, event.daemon],
      [t.events.kind, t.events.kinds[event.kind] ?? event.kind],
      event.rule && [t.events.rule, event.rule],
      event.label && [t.events.label, event.label],
      event.track != null && [t.events.track, `#${event.track}`],
      event.attribute && [t.review.attribute, `${event.attribute.name}: ${event.attribute.value}`],
      event.direction && [t.events.direction, t.events.directions[event.direction]],
      event.dwell != null && [t.events.dwell, format.seconds(event.dwell / 1e9)],
      event.count != null && [t.events.count, event.count],
      event.reason && [t.events.reason, t.events.reasons[event.reason] ?? event.reason],
      [t.events.confirmed, format.seconds((event.confirmed_at - event.at) / 1e9)],
      unseen && [t.events.unseen, t.events.unseenValue(unseen.frames, format.seconds((unseen.longest_gap ?? 0) / 1e9))],
      mark && [t.review.seen, t.review.seenBy(mark.by, format.dateOf(mark.at / 1e9))],
    ]} />
    ${card?.events.length > 1 && html`<h3 class="phases-title">${t.review.phases}</h3>
      <ol class="phases">${card.events.map((row) => html`<li key=${row.id}><button type="button" class="plain"
        aria-current=${row.id === event.id ? "true" : null} onClick=${() => actions.show(row)}>${t.review.phrase(row)}</button> <time datetime=${format.isoOf(row.at / 1e9)}>${format.timeOf(row.at / 1e9)}</time></li>`)}</ol>`}
    ${why && html`<p class="quiet">${why}</p>`}
    <p class="dialog-actions">
      ${hasClip(event) && html`<a class="button" href=${momentOf(event)}>${t.review.clip.open}</a>
        <button type="button" onClick=${() => toggle(PLACE, event)} disabled=${Boolean(why)}>${isPlaying ? t.review.clip.stop : t.review.clip.play}</button>
        <a class="button" href=${clipOf(event)} download="">${t.review.clip.download}</a>`}
      ${hasClip(event) && mayChange() && html`<button type="button" onClick=${() => actions.keep(event, card)}>${t.review.clip.keep}</button>`}
      ${mayChange() && html`<button type="button" aria-pressed=${mark ? "true" : "false"} onClick=${() => actions.markOne(event, !mark)}>${t.review.seen}</button>`}
      <button type="button" onClick=${() => actions.copy(event)}>${t.events.copy}</button></p>`;
}
