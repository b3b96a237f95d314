// The time that bars show: between which moments, how it moves, and how its times are written.
import { now } from "./tiles.js";

export const SECOND = 1000;
export const DAY = 86400000;
const HOUR = 3600 * SECOND;
const SHORTEST = 5 * SECOND;
const LONGEST = 32 * DAY;
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 345600].map((s) => s * SECOND);
const TICK_PX = 90;

/** @typedef {{begin: number, end: number}} View UTC ms */

const form = (options) => new Intl.DateTimeFormat(undefined, options);
const forms = {
  ms: form({ hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 }),
  second: form({ hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  minute: form({ hour: "2-digit", minute: "2-digit" }),
  day: form({ day: "numeric", month: "short" }),
  full: form({ dateStyle: "medium", timeStyle: "medium" }),
  weekday: form({ weekday: "short", day: "numeric", month: "short", year: "numeric" }),
};

export const timeOf = (ms) => forms.second.format(ms);
export const preciseOf = (ms) => forms.ms.format(ms);
export const fullOf = (ms) => forms.full.format(ms);
export const dayOf = (ms) => forms.weekday.format(ms);
export const isoOf = (ms) => new Date(ms).toISOString();

/** The name of this browser's zone, such as "Europe/Berlin (UTC+01:00)". */
export function zoneOf(ms) {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const minutes = -new Date(ms).getTimezoneOffset();
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  const offset = `UTC${minutes < 0 ? "-" : "+"}${two(Math.abs(minutes) / 60)}:${two(Math.abs(minutes) % 60)}`;
  return timeZone === "UTC" ? "UTC" : `${timeZone} (${offset})`;
}

/** The day of a moment in this browser's zone, as an input of type `date` has it, and the time that it lasts. */
export function dateOf(ms) {
  const date = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** @returns {View|null} null for what is no date */
export function viewOfDay(date) {
  const found = /^(\d{4})-(\d\d)-(\d\d)$/.exec(date ?? "");
  if (!found) return null;
  const [year, month, day] = found.slice(1).map(Number);
  const [begin, end] = [new Date(year, month - 1, day).getTime(), new Date(year, month - 1, day + 1).getTime()];
  return Number.isNaN(begin) ? null : { begin, end };
}

export const neighbourDay = (view, step) => viewOfDay(dateOf((view.begin + view.end) / 2 + step * DAY));

/** A view of a length around a moment, as far as bars go. */
export function around(ms, length) {
  const span = Math.max(SHORTEST, Math.min(LONGEST, length));
  return within({ begin: ms - span / 2, end: ms + span / 2 });
}

/** No later than now, but for a little room. */
function within(view) {
  const span = view.end - view.begin;
  const last = Math.max(now() + span / 4, viewOfDay(dateOf(now())).end);
  return view.end > last ? { begin: last - span, end: last } : view;
}

/** Zoom by a factor around a moment that stays where it is. */
export function zoomed(view, factor, ms = (view.begin + view.end) / 2) {
  const span = view.end - view.begin;
  const length = Math.max(SHORTEST, Math.min(LONGEST, span * factor));
  const share = (ms - view.begin) / span;
  return within({ begin: ms - share * length, end: ms + (1 - share) * length });
}

export const moved = (view, ms) => within({ begin: view.begin + ms, end: view.end + ms });

/** Moved so far that a moment can be seen. */
export function showing(view, ms) {
  if (view.begin <= ms && ms <= view.end) return view;
  return around(ms, view.end - view.begin);
}

const offsetOf = (ms) => new Date(ms).getTimezoneOffset() * 60000;

/** The marks of an axis: each with its words. */
export function ticksOf(view, width) {
  const span = view.end - view.begin;
  const step = STEPS.find((one) => (one / span) * width >= TICK_PX) ?? STEPS[STEPS.length - 1];
  const shift = offsetOf(view.begin); // marks are at full hours of this zone
  const found = [];
  for (let even = Math.floor((view.begin - shift) / step) * step + shift; even <= view.end + HOUR; even += step) {
    const ms = step > HOUR ? even + offsetOf(even) - shift : even; // its clocks may be set in between
    if (ms < view.begin || ms > view.end) continue;
    const date = new Date(ms);
    const isMidnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
    found.push({ ms, words: isMidnight ? forms.day.format(ms) : forms[step < 60 * SECOND ? "second" : "minute"].format(ms) });
  }
  return found;
}
