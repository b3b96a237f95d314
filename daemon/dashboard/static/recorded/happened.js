// Events of a source, and how much was seen at once: what a bar shows beside the video.
import { feed } from "../feed.js";
import { at } from "../api.js";
import { json, nsOf } from "./requests.js";
import { now, Tiles, tilesOf } from "./tiles.js";

const MINUTE = 60000;
const DAY = 1440 * MINUTE;
const WIDTHS = [10 * MINUTE, 60 * MINUTE, 360 * MINUTE, DAY, 4 * DAY, 16 * DAY];
const PAGE = 100;
const PAGES = 4; // of a tile: more ticks than this are one to the eye
const STEPS = 720; // of the activity of a tile
const ACTIVE_DAYS = 3; // of longer times no activity is asked for
const FIRST_MS = 10 * MINUTE;
const LONGEST_MS = 40 * DAY;
const LATER_MS = MINUTE; // an event may be told so long after it began; a journal goes by when it was told

const widthOf = (span) => WIDTHS.find((one) => one * 1.5 >= span) ?? WIDTHS[WIDTHS.length - 1];

function covered(tiles, begin, end, width) {
  return tilesOf(begin, Math.min(end, now()), width).flatMap((place) => tiles.get(place, width) ?? []);
}

/** Only what a bar needs of an event: a day may have thousands. */
const short = (event) => ({ id: event.id, daemon: event.daemon, ms: event.at / 1e6, event });

export class Happened {
  /** @param daemons that may have the source */
  constructor(daemons, source) {
    Object.assign(this, { daemons, source });
    this.events = new Tiles((begin, width, signal) => this.loadEvents(begin, width, signal), { most: 48 });
    this.activity = new Tiles((begin, width, signal) => this.loadActivity(begin, width, signal), { most: 48, freshMs: 15000 });
    this.stop = feed.on("event", ({ daemon, message }) => {
      if (message.source === source && daemons.includes(daemon)) this.events.outdate(message.at / 1e6);
    });
  }

  query(values) {
    const daemon = this.daemons.length === 1 ? { daemon: this.daemons[0] } : {};
    return `/api/events?${new URLSearchParams({ ...daemon, source: this.source, ...values })}`;
  }

  own(rows) {
    return rows.filter((row) => this.daemons.includes(row.daemon)).map(short);
  }

  async loadEvents(begin, width, signal) {
    const found = [];
    let cursor = null;
    for (let page = 0; page < PAGES && (page === 0 || cursor); page += 1) {
      const answer = await json(this.query({ after: begin / 1000, before: (begin + width + LATER_MS) / 1000, limit: PAGE, ...(cursor && { cursor }) }), signal);
      found.push(...this.own(answer.events).filter((row) => begin <= row.ms && row.ms < begin + width));
      cursor = answer.cursor;
    }
    return found.sort((a, b) => a.ms - b.ms);
  }

  /** Events of a time, as far as they are known by now, in their order. */
  eventsOf(begin, end) {
    return covered(this.events, begin, end, widthOf(end - begin)).filter((row) => begin <= row.ms && row.ms <= end);
  }

  /** The next event after a moment (1), or the last before it (-1); null if there is none. */
  async beside(ms, direction, signal) {
    if (direction < 0) {
      let cursor = null;
      for (let page = 0; page < PAGES; page += 1) {
        const answer = await json(this.query({ before: (ms + LATER_MS) / 1000, limit: PAGE, ...(cursor && { cursor }) }), signal);
        const [last] = this.own(answer.events).filter((row) => row.ms < ms - 1).sort((a, b) => b.ms - a.ms);
        if (last || !answer.cursor) return last ?? null;
        cursor = answer.cursor;
      }
      return null;
    }
    let [from, width] = [ms + 1, FIRST_MS];
    while (from < now() && from < ms + LONGEST_MS) {
      const answer = await json(this.query({ after: from / 1000, before: (from + width + LATER_MS) / 1000, limit: PAGE }), signal);
      const rows = this.own(answer.events).filter((row) => row.ms > ms + 1);
      if (answer.cursor && rows.length > 1 && width > 1) width /= 4;
      else if (rows.length) return rows.sort((a, b) => a.ms - b.ms)[0];
      else [from, width] = [from + width, Math.min(DAY * 8, width * 4)];
    }
    return null;
  }

  async loadActivity(begin, width, signal) {
    const step = Math.max(1, Math.round(width / STEPS / 1000));
    const end = Math.min(begin + width, now());
    if (end - begin < 1000) return [];
    const answers = await Promise.all(this.daemons.map((daemon) => json(
      `/api/recordings/${at(daemon, this.source)}/activity?from=${nsOf(begin)}&to=${nsOf(end)}&step=${step}`, signal,
    ).catch((error) => {
      if (error.status !== 404) throw error;
      return { stores: [] };
    })));
    const lists = answers.flatMap((answer) => answer.stores.map((store) => store.values));
    const length = Math.max(0, ...lists.map((list) => list.length));
    return Array.from({ length }, (_, index) => ({ ms: begin + index * step * 1000, step: step * 1000, most: mostOf(lists, index) }));
  }

  /** The largest number of tracks at once by steps of time; null where nothing was looked at. */
  activityOf(begin, end) {
    if (end - begin > ACTIVE_DAYS * DAY) return [];
    return covered(this.activity, begin, end, widthOf(end - begin)).filter((row) => row.ms + row.step > begin && row.ms < end);
  }

  listen(listener) {
    const stops = [this.events.listen(listener), this.activity.listen(listener)];
    return () => stops.forEach((stop) => stop());
  }

  keepTo(begin, end) {
    this.events.keepTo(begin, end);
    this.activity.keepTo(begin, end);
  }

  close() {
    this.stop?.();
    this.events.close();
    this.activity.close();
  }
}

function mostOf(lists, index) {
  const known = lists.map((list) => list[index]).filter((value) => value !== null && value !== undefined);
  return known.length ? Math.max(...known) : null;
}
