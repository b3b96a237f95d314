// Events of one track at one camera are a card; cards of one camera that overlap in time, or follow soon, are a group.
//
// The same events give the same groups, in whatever order they come. An event that is newer than all others changes no
// group but the one that it comes to: whether a card joins a group depends only on what happened before its first event.

const S = 1e9; // ns
export const SOON_S = 10; // after the last event of a group
export const LONGEST_S = 300; // from the first event of a group to the first event of its last card
export const MOST_CARDS = 30;

const BEGINS = new Set(["appeared", "entered", "dwell", "over"]);
const ENDS = new Set(["left", "under"]);

/** Events in the order in which they happened; of those at one time, as their numbers say. */
const byTime = (a, b) => a.at - b.at || a.number - b.number || (a.id < b.id ? -1 : 1);

/** What an event is about: a track, or the rule of a crowd. Ids of tracks are those of one run of a daemon. */
const subjectOf = (event) =>
  `${event.source}/${event.instance}/${event.track != null ? `#${event.track}` : (event.rule ?? event.kind)}`;

class Card {
  constructor(event, subject) {
    this.subject = subject;
    this.key = event.id;
    this.daemon = event.daemon;
    this.source = event.source;
    this.track = event.track ?? null;
    this.events = [];
    this.open = new Set(); // rules, or the picture as a whole, in which it is
    this.add(event);
  }

  add(event) {
    this.events.push(event);
    if (BEGINS.has(event.phase)) this.open.add(event.rule);
    if (!ENDS.has(event.phase)) return;
    this.open.delete(event.rule);
    if (event.rule === null || event.rule === undefined) this.open.clear(); // it has left the picture
  }

  get begin() {
    return this.events[0].at;
  }

  get end() {
    return this.events[this.events.length - 1].at;
  }

  /** Its latest label: the tracker learns. */
  get label() {
    for (let n = this.events.length - 1; n >= 0; n -= 1) if (this.events[n].label) return this.events[n].label;
    return null;
  }
}

class Group {
  constructor(card) {
    this.key = card.key;
    this.source = card.source;
    this.cards = [card];
    this.last = card.begin; // of its events so far
  }

  /** Whether a card that begins now belongs to it. */
  takes(at) {
    const goesOn = at - this.last <= SOON_S * S || this.cards.some((card) => card.open.size);
    return goesOn && at - this.begin <= LONGEST_S * S && this.cards.length < MOST_CARDS;
  }

  get begin() {
    return this.cards[0].begin;
  }

  get end() {
    return Math.max(...this.cards.map((card) => card.end));
  }

  get events() {
    return this.cards.flatMap((card) => card.events);
  }
}

/**
 * Whether an event begins another card of its subject: a crowd does each time that there is one, and what happens long
 * after must not be hidden in what was seen long ago.
 */
const beginsAnew = (event, card) =>
  (event.track == null && event.phase === "over") || event.at - card.begin > LONGEST_S * S;

/**
 * Groups, newest first, each with its cards in the order in which they began.
 * @param events in any order, each once
 */
export function groupsOf(events) {
  const groups = [];
  const cards = new Map(); // the latest of each subject, with its group
  const latest = new Map(); // group of each source
  for (const event of [...events].sort(byTime)) {
    const subject = subjectOf(event);
    const known = cards.get(subject);
    if (known && !beginsAnew(event, known.card)) {
      known.card.add(event);
      known.group.last = Math.max(known.group.last, event.at);
      continue;
    }
    const card = new Card(event, subject);
    let group = latest.get(event.source);
    if (group?.takes(event.at)) {
      group.cards.push(card);
      group.last = Math.max(group.last, event.at);
    } else {
      group = new Group(card);
      latest.set(event.source, group);
      groups.push(group);
    }
    cards.set(subject, { card, group });
  }
  return groups.sort((a, b) => b.begin - a.begin || (a.key < b.key ? 1 : -1));
}

/** How many of what a group has: [[label, number], ...], most first. Crowds and the like have no label. */
export function labelsOf(cards) {
  const found = new Map();
  for (const card of cards) if (card.track !== null) found.set(card.label, (found.get(card.label) ?? 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1] || String(a[0]).localeCompare(String(b[0])));
}

/** Rules that its cards met, in the order of their names. */
export const rulesOf = (cards) =>
  [...new Set(cards.flatMap((card) => card.events.map((event) => event.rule).filter(Boolean)))].sort();

/** The event that stands for a card: the first with a picture, and rather of a rule than of the mere object. */
export function leadOf(card) {
  const pictured = card.events.filter((event) => event.has_snapshot);
  return pictured.find((event) => event.rule) ?? pictured[0] ?? card.events.find((event) => event.clip) ?? card.events[0];
}
