// The events that a review shows: pages of the journal, and what comes meanwhile, within bounds.
import { get } from "../api.js";
import { utc } from "../clock.js";
import { events, missed } from "../model.js";
import { Store } from "../store.js";
import { groupsOf } from "./grouping.js";
import { forget, markOf } from "./seen.js";

export const NAMES = ["daemon", "source", "type", "rule", "label", "attribute", "seen", "after", "before"];
export const MOST_EVENTS = 3000; // shown
const MOST_FRESH = 1000; // that wait to be shown; beyond it the list is loaded again
const PAGE = 100;
const AGAIN = 200;
const TYPING_MS = 150;

/** Local time of an input to seconds since 1970. */
const toSeconds = (local) => (local ? new Date(local).getTime() / 1000 : null);

function addressOf(filters, cursor, limit) {
  const query = new URLSearchParams({ limit });
  for (const name of NAMES) {
    const value = name === "after" || name === "before" ? toSeconds(filters[name]) : filters[name];
    if (value) query.set(name, value);
  }
  if (cursor) query.set("cursor", cursor);
  return `/api/events?${query}`;
}

const hasAttribute = (event, wanted) => {
  const { name, value } = event.attribute ?? {};
  return wanted === name || wanted === `${name}=${value}`;
};

export function matches(event, filters) {
  const own = { daemon: event.daemon, source: event.source, type: event.kind, rule: event.rule, label: event.label };
  const s = event.at / 1e9;
  return Object.entries(own).every(([name, value]) => !filters[name] || filters[name] === value)
    && (!filters.attribute || hasAttribute(event, filters.attribute))
    && (!filters.seen || (filters.seen === "yes") === Boolean(markOf(event)))
    && (!filters.after || s >= toSeconds(filters.after)) && (!filters.before || s <= toSeconds(filters.before));
}

/** Where the page of older events begins: below the least number of each daemon. */
function cursorOf(rows) {
  const least = {};
  for (const { daemon, number } of rows) least[daemon] = Math.min(least[daemon] ?? number, number);
  return btoa(JSON.stringify(least)).replaceAll("+", "-").replaceAll("/", "_");
}

/**
 * A list for some filters. `state` grows with each change; then these are new:
 * groups: that are shown, newest first; waiting: cards that are not shown yet; missing: daemons that did not answer.
 */
export class EventList {
  constructor(filters) {
    this.filters = filters;
    this.state = new Store(0);
    this.rows = new Map(); // shown
    this.fresh = new Map(); // not shown yet, unless their group is
    Object.assign(this, { groups: [], waiting: 0, cursor: null, missing: [], busy: true, failure: null, ended: false });
    this.isOver = false; // more came than may wait
  }

  start() {
    const timer = setTimeout(() => this.load(), TYPING_MS);
    const stops = [events.listen(() => this.take()), missed.listen(() => this.loadAgain())];
    return () => {
      this.ended = true;
      clearTimeout(timer);
      stops.forEach((stop) => stop());
    };
  }

  get isFull() {
    return this.rows.size >= MOST_EVENTS;
  }

  async ask(cursor, limit, use) {
    Object.assign(this, { busy: true, failure: null });
    this.changed();
    try {
      const found = await get(addressOf(this.filters, cursor, limit));
      if (this.ended) return;
      this.missing = found.missing ?? [];
      forget(found.events);
      use(found);
    } catch (error) {
      this.failure = error.message;
    }
    this.busy = false;
    if (!this.ended) this.take();
  }

  load() {
    return this.ask(null, PAGE, (found) => this.reset(found));
  }

  older() {
    if (this.busy || !this.cursor || this.isFull) return Promise.resolve();
    return this.ask(this.cursor, PAGE, (found) => {
      found.events.forEach((event) => this.rows.set(event.id, event));
      this.cursor = found.cursor;
    });
  }

  /** Messages did not come: what the journal has is asked for, and where it does not join what is shown, replaces it. */
  loadAgain() {
    if (!this.rows.size) return this.load();
    return this.ask(null, AGAIN, (found) => {
      const joins = found.events.some((event) => this.rows.has(event.id)) || !found.cursor;
      if (!joins) return this.reset(found);
      for (const event of found.events) {
        if (this.rows.has(event.id)) this.rows.set(event.id, event);
        else this.hold(event);
      }
      return undefined;
    });
  }

  reset(found) {
    this.rows = new Map(found.events.map((event) => [event.id, event]));
    this.fresh.clear();
    this.isOver = false;
    this.cursor = found.cursor;
    this.collect();
    this.fresh.forEach((event, id) => this.rows.set(id, event));
    this.fresh.clear();
  }

  take() {
    this.collect();
    this.arrange();
  }

  /** What has come by itself. */
  collect() {
    // What the journal has between the last row of the page and those that came before it is not here yet.
    const last = this.cursor && this.rows.size ? Math.min(...[...this.rows.values()].map((event) => event.at)) : 0;
    for (const event of events.value) {
      const isNew = !this.rows.has(event.id) && !this.fresh.has(event.id);
      if (isNew && event.at >= last && matches(event, this.filters)) this.hold(event);
    }
    for (const id of this.fresh.keys()) if (this.rows.has(id)) this.fresh.delete(id);
  }

  hold(event) {
    this.isOver ||= this.fresh.size >= MOST_FRESH && !this.fresh.has(event.id);
    if (!this.isOver) this.fresh.set(event.id, event);
  }

  /** Show what waits. @param isWanted somebody has asked for it: also if it has failed before */
  show(isWanted = false) {
    if (this.isOver) return void (this.busy || (this.failure && !isWanted) || this.load());
    this.fresh.forEach((event, id) => this.rows.set(id, event));
    this.fresh.clear();
    if (this.rows.size > MOST_EVENTS) {
      const kept = [...this.rows.values()].sort((a, b) => b.at - a.at).slice(0, MOST_EVENTS - PAGE);
      this.rows = new Map(kept.map((event) => [event.id, event]));
      this.cursor = cursorOf(kept);
    }
    this.arrange();
  }

  isShown(card) {
    return card.events.some((event) => this.rows.has(event.id));
  }

  arrange() {
    const all = groupsOf([...this.rows.values(), ...this.fresh.values()]);
    this.waiting = 0;
    for (const group of all) {
      const shown = group.cards.filter((card) => this.isShown(card));
      this.waiting += group.cards.length - shown.length;
      group.cards = shown;
    }
    this.groups = all.filter((group) => group.cards.length);
    this.changed();
  }

  changed() {
    this.state.update((n) => n + 1);
  }
}

/** Whether an event may still get its clip. */
export const isYoung = (event) => utc() - event.confirmed_at / 1e9 < 90;
