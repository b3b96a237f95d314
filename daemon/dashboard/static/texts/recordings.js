// Words of the pages of recordings.
import { plural } from "./plural.js";

export const recordingsTexts = {
  title: "Recordings",
  all: "All cameras", live: "Live", day: "Day", dayBefore: "Day before", dayAfter: "Day after", view: "Time that is shown",
  zoomIn: "Show less time", zoomOut: "Show more time",
  spans: { days32: "32 days", week: "Week", hour: "Hour", minute: "Minute" },
  zone: (name) => `Times are of ${name}.`,
  none: "Nothing is recorded", noneHint: "Daemons record where their configuration has record.stores, and show it where it has record.port.",
  nothingOf: (daemon, source) => `Nothing was recorded of ${source} at ${daemon}.`,
  failed: (row) => `${row.store ? `Store ${row.store} of ${row.daemon}` : `Recordings of ${row.daemon}`}: ${row.reason ?? "no answer"}`,
  bar: (source) => `Recordings of ${source}`,
  list: "As a list", from: "From", to: "Until", what: "What",
  more: (n) => `${n} more: zoom in to see them.`,
  events: (n, isMany) => `${isMany ? "At least " : ""}${plural(n, "event", "events")} in this time.`,
  seen: (n) => `${plural(n, "object", "objects")} at once`,
  legend: "What the bar shows",
  keys: { video: "recorded", claimed: "recorded, and an event wants it", gap: "not recorded", event: "event", activity: "objects seen at once", lock: "kept" },
  keysOverview: "A click opens a moment. The wheel, two fingers, + and - zoom; dragging and Shift with an arrow key move. With the focus on a bar, arrow keys choose a moment and Enter opens it.",
  keysPlayer: "Keys: Space or K plays, arrow keys or , and . go to the picture before or after, J and L 10 s back and on, P and N to the event before or after, I and O mark a range, + and - zoom.",
  causes: {
    source_down: "the camera gave no video", no_key: "no key picture had come yet", network: "packets were lost between camera and daemon",
    disk_slow: "the disk was too slow", disk_full: "the disk was full", disk_error: "the disk refused to write",
    store_away: "the store was away", store_hung: "the store did not answer", recorder_down: "the recorder was down",
    daemon_down: "the daemon did not run", off: "recording was off", no_event: "no event wanted it", codec: "video that cannot be recorded",
    fenced: "another daemon had the source", clock: "the clock was set", expired: "it was deleted, as the limits of the store say",
    unread: "the index is being made, and may not know it yet",
  },
  sayGap: (row) => (row.cause ? `Not recorded: ${recordingsTexts.causes[row.cause] ?? row.cause}${row.detail ? ` (${row.detail})` : ""}` : "Not recorded"),
  sayRow: (row, isFuture, isWhole) => {
    if (isFuture) return "Still to come";
    if (!row) return isWhole ? "Nothing is known" : "Loading";
    if (row.kind === "gap") return recordingsTexts.sayGap(row);
    return row.kind === "claimed" ? "Recorded, and an event wants it" : "Recorded";
  },
  skipped: ({ from, to, cause }) => `${plural(Math.round((to - from) / 1000), "second was", "seconds were")} left out. ${cause ? `${recordingsTexts.sayGap(cause)}.` : "Not recorded."}`,
  waiting: { loading: "Loading", gap: "Looking for what is recorded next", edge: "This is the newest picture. More is waited for." },
  noCodec: (mime) => `This browser cannot play ${/codecs="([^"]*)"/.exec(mime ?? "")?.[1] ?? "this video"}: stills are shown.`,
  broken: (reason) => `This browser could not play the video${reason ? ` (${reason})` : ""}: stills are shown.`,
  picture: (source, time) => `${source}, ${time}`, leaveOut: (source) => `Leave out ${source}`,
  kinds: {
    exact: "Boxes of this picture", between: "Not analysed: boxes lie between two analysed pictures", none: "No boxes are stored of this picture",
    other: "Boxes are of another stream", pending: "", off: "",
  },
  transport: "Playing", play: "Play", pause: "Pause", rate: "Speed",
  pictureBefore: "Picture before", pictureAfter: "Picture after", eventBefore: "Event before", eventAfter: "Event after", noEvent: "There is no further event.",
  markFrom: "Mark in", markTo: "Mark out",
  marked: { from: (time) => `The range begins at ${time}`, to: (time) => `The range ends at ${time}` },
  add: "Add a camera", choose: "Choose",
  range: "Range", rangeHint: "Mark where it begins and ends, by the buttons or by the keys I and O.",
  rangeSays: (from, to) => `From ${from ?? "…"} to ${to ?? "…"}`,
  clearRange: "Clear the range", download: "Download as MP4", keep: "Keep this", keepTitle: "Keep this time",
  long: "This is longer than ten minutes. The daemon gives no longer clips: lookout recordings export writes them.",
  saved: "The clip is saved.", savedWithGaps: (n) => `The clip is saved. It goes on behind ${plural(n, "gap", "gaps")} at once.`,
  tooLarge: (mib) => `The clip is larger than ${mib} MiB: choose a shorter range.`,
  reason: "Why", reasonHint: "Everybody who may see recordings can read it.", keptNow: "This time is kept until somebody unlocks it.",
  locks: "Kept times", kept: (lock) => `${lock.reason}${lock.by ? ` (${lock.by})` : ""}`, unlock: "Unlock", unlocked: "The time is kept no longer.",
  copy: "Copy link to this moment", snapshot: "Save picture", snapshotBoxes: "Save picture with boxes",
  savedPicture: "The picture is saved.", noPicture: "There is no picture of this moment.",
};
