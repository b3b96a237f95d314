// All cameras with recordings, a bar for each, on one clock.
import { at } from "../api.js";
import { html, useRef, useState } from "../html.js";
import { Empty } from "../parts.js";
import { useOnScreen } from "../picture.js";
import { go } from "../router.js";
import { t } from "../texts.js";
import { Axis, Bar, useTimeline } from "./bar.js";
import * as scale from "./scale.js";
import { useView, ViewTools } from "./view.js";
import { now } from "./tiles.js";

export function Overview({ route, places, failed }) {
  const [view, setView] = useView(route, () => scale.viewOfDay(scale.dateOf(now())));
  const [cursor, setCursor] = useState(null);
  const middle = cursor !== null && view.begin <= cursor && cursor <= view.end ? cursor : Math.min((view.begin + view.end) / 2, now());
  return html`
    <div class="bar"><h1>${t.recordings.title} <small>${t.recordings.zone(scale.zoneOf(view.begin))}</small></h1></div>
    <${ViewTools} view=${view} setView=${setView} />
    ${failed}
    ${!places.length && html`<${Empty} title=${t.recordings.none}><p>${t.recordings.noneHint}</p><//>`}
    ${places.length > 0 && html`<div class="past-rows">
      <div class="past-head"><span></span><${Axis} view=${view} setView=${setView} /></div>
      ${places.map((place) => html`<${Row} key=${`${place.daemon}/${place.source}`} place=${place} view=${view} setView=${setView} at=${middle}
        setAt=${(ms, isChosen) => (isChosen ? go(addressOf(place, ms, view)) : setCursor(ms))} />`)}
    </div><${Legend} /><p class="quiet">${t.recordings.keysOverview}</p>`}`;
}

/** Of the player of a place, with the same zoom around a moment. */
function addressOf(place, ms, view) {
  const query = new URLSearchParams({ at: scale.isoOf(Math.min(ms, now())), zoom: Math.round((view.end - view.begin) / 1000) });
  return `/recordings/${at(place.daemon, place.source)}?${query}`;
}

function Row({ place, ...more }) {
  const frame = useRef(null);
  const isSeen = useOnScreen(frame);
  const wasSeen = useRef(false);
  wasSeen.current ||= isSeen;
  return html`<section class="past-row" ref=${frame} aria-label=${place.source}>
    <h2><a href=${`/recordings/${at(place.daemon, place.source)}`}>${place.source}</a></h2>
    ${isSeen ? html`<${Seen} place=${place} ...${more} />` : html`<div class="past-strip"></div>`}
  </section>`;
}

function Seen({ place, view, setView, at: middle, setAt }) {
  const timeline = useTimeline(place, view);
  return html`<div><${Bar} place=${place} timeline=${timeline} view=${view} setView=${setView} at=${middle} setAt=${setAt} />
    ${timeline.failure && html`<p class="warn" role="status">${timeline.failure}</p>`}</div>`;
}

export function Legend() {
  return html`<ul class="past-legend" aria-label=${t.recordings.legend}>
    ${["video", "claimed", "gap", "event", "activity", "lock"].map((name) => html`<li><i class=${`past-key past-key-${name}`} aria-hidden="true"></i>${t.recordings.keys[name]}</li>`)}
  </ul>`;
}
