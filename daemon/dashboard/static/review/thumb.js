// A small picture of an event that plays its clip: one at a time, without sound, and by itself only where motion is wanted.
import { html, useEffect, useRef, useState } from "../html.js";
import { keyOf, sources } from "../model.js";
import { Icon } from "../parts.js";
import { Store, useStore } from "../store.js";
import { isYoung } from "./list.js";
import { clipOf, hasClip, thumbOf, whyNoClip, whyNotPlayed } from "./clip.js";

const REST_MS = 350; // of a pointer or the focus, before the clip plays
const AGAIN_MS = 5000; // a picture that is not on the disk yet
const SHAPE = 16 / 9;
const MOST_PROBLEMS = 500;
let timer = 0;

export const playing = new Store(null); // the place that plays
export const problems = new Store(new Map()); // by id of an event: why its clip does not play

function noteProblem(id, words) {
  problems.value.delete(id);
  if (words) problems.value.set(id, words);
  if (problems.value.size > MOST_PROBLEMS) problems.value.delete(problems.value.keys().next().value);
  problems.touch();
}

export function stop() {
  clearTimeout(timer);
  playing.set(null);
}

/** Play the clip of an event at a place: a row, or the dialog. */
export function play(place, event) {
  clearTimeout(timer);
  const why = whyNoClip(event);
  noteProblem(event.id, why);
  if (!why) playing.set(place);
}

export const toggle = (place, event) => (playing.value === place ? stop() : play(place, event));

/** A pointer or the focus rests on it: it plays after a moment, unless motion is not wanted. */
export function playSoon(place, event) {
  clearTimeout(timer);
  if (!hasClip(event) || whyNoClip(event) || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  timer = setTimeout(() => playing.value === place || play(place, event), REST_MS);
}

/** The clip of an event, playing. */
export function Clip({ place, event, controls = false }) {
  const video = useRef(null);
  const fail = (words) => {
    if (playing.value === place) playing.set(null);
    noteProblem(event.id, words);
  };
  useEffect(() => {
    const element = video.current;
    // A browser that would rather not leaves the still, without a word: nothing is wrong with the clip.
    element.play().catch((error) => error.name === "NotAllowedError" && fail(null));
    return () => {
      element.removeAttribute("src"); // the download ends with it
      element.load();
    };
  }, [event.id]);
  return html`<video ref=${video} src=${clipOf(event)} muted playsinline loop=${!controls} controls=${controls} preload="none"
    aria-hidden=${controls ? null : "true"} tabindex=${controls ? null : "-1"}
    onError=${({ target }) => target.getAttribute("src") && whyNotPlayed(event).then(fail)}></video>`;
}

export function Thumb({ place, event }) {
  const [gone, setGone] = useState(null);
  const isPlaying = useStore(playing) === place;
  const problem = useStore(problems).get(event.id);
  const wanted = thumbOf(event);
  const picture = gone === wanted ? null : wanted;
  useEffect(() => {
    if (gone === null || !isYoung(event)) return undefined;
    const again = setTimeout(() => setGone(null), AGAIN_MS);
    return () => clearTimeout(again);
  }, [gone]);
  const aspect = sources.value.get(keyOf(event.daemon, event.source))?.pixel_aspect ?? 1;
  return html`<span class=${`thumb ${isPlaying ? "is-playing" : ""}`} style=${aspect === 1 ? null : { "--shape": SHAPE * aspect }}>
    ${picture && html`<img class="event-picture" src=${picture} alt="" loading="lazy" decoding="async" onError=${() => setGone(picture)} />`}
    ${isPlaying && html`<${Clip} place=${place} event=${event} />`}
    ${hasClip(event) && !isPlaying && !problem && html`<span class="thumb-mark"><${Icon} name="play" /></span>`}
    ${problem && html`<span class="thumb-words">${problem}</span>`}
  </span>`;
}

export const useProblem = (event) => useStore(problems).get(event.id);
export const usePlays = (place) => useStore(playing) === place;
