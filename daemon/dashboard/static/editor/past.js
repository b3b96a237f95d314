// What the chosen rule would have found in what was recorded: asked of the daemon, and shown as it comes.
import { ApiError, at, lines } from "../api.js";
import { utc } from "../clock.js";
import * as format from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { announce, Notice } from "../parts.js";
import { t } from "../texts.js";
import * as shapes from "./shapes.js";

const SPANS_S = [3600, 86400, 604800];
const SHOWN = 300; // of each list
const TRIES = 5; // a search that was given up may still be ending
const PAUSE_MS = 1000;
const JUST_AFTER_NS = 1e6; // numbers of JavaScript are not exact to the ns: within the picture, not before it

const secondsOf = (ns) => ns / 1e9;
const pause = () => new Promise((done) => setTimeout(done, PAUSE_MS));

/** @yields lists of answers */
async function* asked(path, question, signal) {
  for (let tries = 1; ; tries += 1) {
    try {
      yield* lines(path, question, signal);
      return;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 429 || tries === TRIES || signal.aborted) throw error;
    }
    await pause();
  }
}

function useSearch(row) {
  const [found, setFound] = useState(null);
  const running = useRef(null);
  const stop = () => {
    running.current?.abort();
    running.current = null;
  };
  useEffect(() => stop, []);
  const start = async (rule, span) => {
    stop();
    const own = (running.current = new AbortController());
    const [to, now] = [utc() * 1000, { events: [], unseen: [], rule: JSON.stringify(rule), span, share: 0, end: null, failure: null }];
    const from = to - span * 1000;
    const question = { source: row.id, rule, from: new Date(from).toISOString(), to: new Date(to).toISOString() };
    const show = (state) => running.current === own && setFound({ ...now, state });
    show("running");
    try {
      for await (const answers of asked(`/api/search/${at(row.daemon)}`, question, own.signal)) {
        for (const answer of answers) {
          if (answer.event) now.events.push(answer.event);
          if (answer.unseen) now.unseen.push(answer.unseen);
          if (answer.progress) now.share = (answer.progress.at / 1e6 - from) / (to - from);
          if (answer.end) now.end = answer.end;
          if (answer.error) now.failure = answer.error;
        }
        show("running");
      }
      if (!now.end) now.failure ??= t.search.broken;
    } catch (error) {
      now.failure = error instanceof ApiError ? error.message : t.search.broken;
    }
    show("done");
    if (running.current === own && now.end) announce(t.search.done(now.events.length, format.seconds(now.end.seen_s)));
  };
  const cancel = () => {
    stop();
    setFound((before) => before && { ...before, state: "cancelled" });
    announce(t.search.cancelled);
  };
  return { found, start, cancel };
}

/** The rule that is chosen, over the last hour, day or week. */
export function Past({ row, rule }) {
  const { found, start, cancel } = useSearch(row);
  const config = shapes.toConfig(rule);
  const isRunning = found?.state === "running";
  return html`<section class="past" aria-label=${t.search.title}><h2>${t.search.title}</h2>
    <p class="hint">${t.search.hint(rule.name)}</p>
    <div class="controls">${SPANS_S.map((span) => html`<button key=${span} aria-pressed=${found?.span === span} onClick=${() => start(config, span)}>${t.search.spans[span]}</button>`)}
      <button disabled=${!isRunning} onClick=${cancel}>${t.cancel}</button></div>
    ${found && html`<${Found} found=${found} row=${row} isOld=${found.rule !== JSON.stringify(config)} />`}
  </section>`;
}

function Found({ found, row, isOld }) {
  const { state, events, unseen, share, end, failure } = found;
  const n = events.length;
  return html`
    ${state === "running" && html`<progress max="1" value=${Math.min(1, Math.max(0, share))} aria-label=${t.search.running}></progress>`}
    <p class="past-says">${end ? t.search.done(n, format.seconds(end.seen_s)) : state === "cancelled" ? `${t.search.cancelled} ${t.search.sofar(n)}` : t.search.sofar(n)}
      ${end?.unseen_s >= 0.05 && html` ${t.search.blind(format.seconds(end.unseen_s))}`}</p>
    ${failure && html`<${Notice} kind="error">${failure}<//>`}
    ${isOld && html`<${Notice}>${t.search.old}<//>`}
    ${n > SHOWN && html`<p class="quiet">${t.search.newest(SHOWN)}</p>`}
    ${n > 0 && html`<ol class="search-list">${events.slice(-SHOWN).map((event) => html`<${Result} key=${`${event.confirmed_seq} ${event.seq} ${event.track} ${event.phase}`} event=${event} row=${row} />`)}</ol>`}
    ${unseen.length > 0 && html`<details><summary>${t.search.unseen(unseen.length)}</summary>
      <ul class="past-unseen" tabindex="0" aria-label=${t.search.unseen(unseen.length)}>${unseen.slice(0, SHOWN).map((one) => html`<li><b>${t.search.causes[one.cause] ?? one.cause}</b>
        <span>${t.search.between(format.dateOf(secondsOf(one.from)), format.seconds(secondsOf(one.to - one.from)))}</span>
        ${one.detail && html`<span class="quiet">${one.detail}</span>`}</li>`)}</ul></details>`}`;
}

function Result({ event, row }) {
  const [hasStill, setStill] = useState(Boolean(event.picture));
  const seconds = secondsOf(event.picture?.at ?? event.at);
  const words = t.events.say(event);
  const body = html`
    ${hasStill ? html`<img class="event-picture" alt="" loading="lazy" onError=${() => setStill(false)}
      src=${`/api/recordings/${at(row.daemon, row.id)}/still?at=${event.picture.at + JUST_AFTER_NS}&width=160`} />`
      : html`<span class="event-picture is-empty" aria-hidden="true"></span>`}
    <span class="past-words">${words}${event.partial && html` <span class="quiet">${t.search.partial}</span>`}</span>
    <time datetime=${format.isoOf(seconds)}>${format.dateOf(seconds)}</time>`;
  // In a page of its own: here may be changes that are not saved.
  return html`<li class="event">${event.picture
    ? html`<a href=${`/recordings/${at(row.daemon, row.id)}?at=${format.isoOf(seconds)}`} target="_blank" rel="noopener"
        aria-label=${t.search.open(words, format.dateOf(seconds))}>${body}</a>`
    : html`<div>${body}</div>`}</li>`;
}
