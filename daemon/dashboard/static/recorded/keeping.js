// What somebody takes from the past, or keeps of it: a range as MP4, locks, a link, a picture.
import { ApiError, at, get, send } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { mayChange } from "../model.js";
import { announce, Dialog, Field, Notice } from "../parts.js";
import { t } from "../texts.js";
import { ask, nsOf, pathOf } from "./requests.js";
import * as scale from "./scale.js";

const LIMIT_BYTES = 256 << 20; // of a clip that is held in memory to be saved
const LONG_MS = 600000;
const CLIP_LIMIT_MS = 120000; // a daemon may take so long to make a clip

const save = (blob, name) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

const stamp = (ms) => scale.isoOf(ms).replace(/[:.]/g, "-");

/** Locks of a place, of all its daemons. */
export function useLocks(place) {
  const [locks, setLocks] = useState([]);
  const key = `${place.daemons.join()}/${place.source}`;
  const load = async (isCurrent = () => true) => {
    const answers = await Promise.allSettled(place.daemons.map((daemon) => get(pathOf(daemon, place.source, "locks"))));
    const found = answers.flatMap((answer, index) => (answer.value?.locks ?? []).map(({ store, lock }) => ({
      ...lock, store, daemon: place.daemons[index], begin: lock.begin / 1e6, end: lock.end / 1e6,
    })));
    if (isCurrent()) setLocks(found.sort((a, b) => a.begin - b.begin));
  };
  useEffect(() => {
    let current = true;
    load(() => current).catch(() => {});
    return () => (current = false);
  }, [key]);
  return [locks, load];
}

/** The first answer of daemons that may have a time: another one is asked where one has nothing. See `ask`. */
async function fromAny(place, path, signal, options) {
  let failure = null;
  for (const daemon of place.daemons) {
    try {
      return await ask(pathOf(daemon, place.source, path), signal, options);
    } catch (error) {
      if (signal.aborted) throw error;
      failure = error.status === 404 && failure ? failure : error;
    }
  }
  throw failure ?? new ApiError(t.errors.away, 0);
}

async function download(place, { from, to }, signal) {
  const path = `clip.mp4?from=${nsOf(from)}&to=${nsOf(to)}`;
  const answer = await fromAny(place, path, signal, { most: LIMIT_BYTES, limit: CLIP_LIMIT_MS });
  if (!answer) throw new ApiError(t.recordings.tooLarge(LIMIT_BYTES >> 20), 0);
  if (signal.aborted) throw signal.reason;
  save(answer.blob, `${place.source}-${stamp(from)}.mp4`);
  const told = answer.headers.get("X-Lookout-Clip");
  return told ? JSON.parse(told).gaps ?? [] : [];
}

/** What may be done with a range: from the mark `i` to the mark `o`. */
export function RangeTools({ place, range, setRange, locks, reload }) {
  const [state, setState] = useState({ busy: false, failure: null, done: null });
  const [isKeeping, setKeeping] = useState(false);
  const stop = useRef(null);
  useEffect(() => () => stop.current?.abort(), []);
  const isWhole = range.from !== null && range.to !== null && range.to > range.from;
  const run = async (work) => {
    setState({ busy: true, failure: null, done: null });
    try {
      const done = await work();
      setState({ busy: false, failure: null, done });
      announce(done);
    } catch (error) {
      if (error.name !== "AbortError") setState({ busy: false, failure: error.message, done: null });
    }
  };
  const take = () => run(async () => {
    stop.current = new AbortController();
    const gaps = await download(place, range, stop.current.signal);
    return gaps.length ? t.recordings.savedWithGaps(gaps.length) : t.recordings.saved;
  });
  return html`<section class="past-range" aria-label=${t.recordings.range}>
    <h2>${t.recordings.range}</h2>
    <p>${range.from === null && range.to === null ? t.recordings.rangeHint : t.recordings.rangeSays(
      range.from === null ? null : scale.fullOf(range.from), range.to === null ? null : scale.fullOf(range.to),
    )}</p>
    ${isWhole && range.to - range.from > LONG_MS && html`<p class="warn">${t.recordings.long}</p>`}
    <div class="controls">
      <button onClick=${take} disabled=${!isWhole || state.busy}>${state.busy ? t.loading : t.recordings.download}</button>
      ${mayChange() && html`<button onClick=${() => setKeeping(true)} disabled=${!isWhole}>${t.recordings.keep}</button>`}
      ${(range.from !== null || range.to !== null) && html`<button class="plain" onClick=${() => setRange({ from: null, to: null })}>${t.recordings.clearRange}</button>`}
      <span role="status">${state.done ?? ""}</span>
    </div>
    ${state.failure && html`<${Notice} kind="error">${state.failure}<//>`}
    <${Locks} place=${place} locks=${locks} reload=${reload} run=${run} />
    ${isKeeping && html`<${Keep} place=${place} range=${range} onClose=${() => setKeeping(false)} onDone=${reload} />`}
  </section>`;
}

function Locks({ locks, reload, run }) {
  if (!locks.length) return null;
  const unlock = (lock) => run(async () => {
    await send("DELETE", `/api/recordings/${at(lock.daemon)}/locks/${lock.id}?store=${encodeURIComponent(lock.store)}`);
    await reload();
    return t.recordings.unlocked;
  });
  return html`<h3>${t.recordings.locks}</h3><ul class="past-locks">${locks.map((lock) => html`<li key=${lock.daemon + lock.store + lock.id}>
    <span>${scale.fullOf(lock.begin)} – ${scale.fullOf(lock.end)}</span> <span class="quiet">${t.recordings.kept(lock)}</span>
    ${mayChange() && html`<button class="plain" onClick=${() => unlock(lock)}>${t.recordings.unlock}</button>`}</li>`)}</ul>`;
}

/** Lock a range in all that have the source: which of them has the video is theirs to know. */
function Keep({ place, range, onClose, onDone }) {
  const [reason, setReason] = useState("");
  const [failure, setFailure] = useState(null);
  const keep = async (event) => {
    event.preventDefault();
    const body = { from: scale.isoOf(range.from), to: scale.isoOf(range.to), reason: reason.trim() };
    const answers = await Promise.allSettled(place.daemons.map((daemon) => send("POST", pathOf(daemon, place.source, "locks"), body)));
    const failed = answers.find((answer) => answer.status === "rejected" && answer.reason.status !== 404);
    if (failed || answers.every((answer) => answer.status === "rejected")) return setFailure((failed ?? answers[0]).reason.message);
    await onDone();
    announce(t.recordings.keptNow);
    return onClose();
  };
  return html`<${Dialog} title=${t.recordings.keepTitle} onClose=${onClose}>
    <form onSubmit=${keep}>
      <p>${t.recordings.rangeSays(scale.fullOf(range.from), scale.fullOf(range.to))}</p>
      <${Field} label=${t.recordings.reason} hint=${t.recordings.reasonHint} id="lock-reason">
        <input id="lock-reason" required maxlength="200" value=${reason} aria-describedby="lock-reason-hint"
          onInput=${(event) => setReason(event.target.value)} /><//>
      ${failure && html`<${Notice} kind="error">${failure}<//>`}
      <p class="dialog-actions"><button type="button" onClick=${onClose}>${t.cancel}</button>
        <button class="primary">${t.recordings.keep}</button></p>
    </form><//>`;
}

/** A link to a moment, and pictures of it. */
export function MomentTools({ place, clock, picture }) {
  const [said, setSaid] = useState("");
  const say = (words) => {
    setSaid(words);
    announce(words);
  };
  const copy = () => {
    const address = new URL(`/recordings/${at(place.daemon, place.source)}?at=${scale.isoOf(clock.at)}`, location.href).href;
    return navigator.clipboard?.writeText(address).then(() => say(t.events.copied), () => say(t.events.copyFailed)) ?? say(t.events.copyFailed);
  };
  const shoot = async (withBoxes) => {
    const found = await picture.current?.snapshot(withBoxes);
    if (!found) return say(t.recordings.noPicture);
    save(found.blob, `${place.source}-${stamp(found.ms)}.jpg`);
    return say(t.recordings.savedPicture);
  };
  return html`<div class="controls">
    <button onClick=${copy}>${t.recordings.copy}</button>
    <button onClick=${() => shoot(false)}>${t.recordings.snapshot}</button>
    <button onClick=${() => shoot(true)}>${t.recordings.snapshotBoxes}</button>
    <span role="status">${said}</span></div>`;
}
