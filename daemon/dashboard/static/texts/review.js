// Words of the review of events.
const plural = (n, one, many) => `${n} ${n === 1 ? one : many}`;
const PEOPLE = { person: "people", bus: "buses", child: "children", man: "men", woman: "women" };

const few = (n, label) => `${n} ${n === 1 ? label : (PEOPLE[label] ?? `${label}s`)}`;

export const reviewTexts = {
  live: "New events appear by themselves, or are counted while you look at others.",
  zone: (name) => `Times are those of ${name}.`,
  keys: "Keys",
  fresh: (n) => `${n} new`,
  freshHint: (n) => `${plural(n, "new card", "new cards")}: show`,
  older: "Older events",
  full: (n) => `${n} events are shown, which is the most. Set “Until” to see older ones.`,
  filters: (n) => (n ? `Filters (${n})` : "Filters"),
  attribute: "Attribute", seenFilter: "Seen", seenOptions: { no: "Not seen", yes: "Seen" },
  seen: "Seen", markSeen: "Mark as seen", unmark: "Not seen",
  seenBy: (by, time) => (by ? `Seen by ${by}, ${time}` : `Seen, ${time}`),
  goes: (reason) => `Marks go when the page's server starts again: ${reason}.`,
  group: (labels, others, source) => {
    const parts = labels.map(([label, n]) => few(n, label ?? "object"));
    if (others) parts.push(plural(others, "other", "others"));
    return `${parts.join(", ")} at ${source}`;
  },
  range: (from, to) => (from === to ? from : `${from} to ${to}`),
  expand: (n) => `Show its ${n} cards`, collapse: "Show one card",
  times: (words, n) => (n > 1 ? `${words} (${n} times)` : words),
  phrase: (e) => {
    const by = e.direction ? ` ${e.direction}` : "";
    const says = {
      appeared: "appeared", left: e.rule ? `left ${e.rule}` : "left", entered: `entered ${e.rule}`, dwell: `stays in ${e.rule}`,
      crossed: `crossed ${e.rule}${by}`, passed: `passed ${e.rule}${by}`,
      over: `${e.count ?? ""} objects crowd ${e.rule}`.trim(), under: `${e.rule} is no longer crowded`,
      settled: `${e.attribute?.name} is ${e.attribute?.value}`, changed: `${e.attribute?.name} is now ${e.attribute?.value}`,
    };
    return says[e.phase] ?? `${e.kind} ${e.phase}`;
  },
  what: (label, track) => `${label ?? "object"} #${track}`,
  card: (what, phrases) => (what ? `${what} ${phrases.join(", ")}` : phrases.join(", ")),
  clip: {
    none: "No video of this event is recorded.",
    noPlayer: "The page has no access to recordings of this daemon.",
    notReady: "The clip is not ready yet.",
    codec: "This browser cannot play HEVC. A still is shown.",
    broken: "This browser cannot play the clip.",
    playing: "Playing", play: "Play", stop: "Stop", download: "Download", open: "Open in the recordings", keep: "Keep",
  },
  said: {
    seen: (n) => `${plural(n, "event is", "events are")} marked as seen. U takes it back.`,
    unseen: (n) => `${plural(n, "event is", "events are")} no longer marked.`,
    kept: (from, to, source) => `${source} from ${from} to ${to} is kept. U takes it back.`,
    released: "It is kept no longer.",
    nothing: "There is nothing to take back.",
    viewOnly: "You may view. A token with the role operate may do this.",
    failed: (reason) => `It was not done: ${reason}`,
    end: "There are no more events.",
  },
  lockReason: (id) => `event ${id}`,
  phases: "What happened",
  help: {
    title: "Keys",
    rows: [
      ["J or ↓, K or ↑", "next, previous"], ["Enter", "open"], ["Escape", "close"], ["Space", "play the clip, or stop it"],
      ["S or X", "mark as seen, and go on"], ["U", "take the last mark or lock back"], ["→, ←", "show the cards of a group, or one"],
      ["L", "keep the video of it"], ["D", "download the clip"], ["C", "copy the link"], [".", "show new events"], ["?", "this help"],
    ],
  },
};
