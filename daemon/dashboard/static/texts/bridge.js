// Words of the page of bridges.
import { plural } from "./plural.js";

export const bridgeTexts = {
  title: "Bridge", none: "No daemon of this page has a bridge that tells of itself.",
  how: "Set bridge.targets and bridge.port in the configuration, and run `lookout bridge`.",
  of: (daemon) => `Bridge of ${daemon}`,
  target: (name, daemon) => `Target ${name} of ${daemon}'s bridge`,
  targets: "Targets", name: "Target", state: "State", delivered: "Delivered", spooled: "Waiting", left: "Left out", dropped: "Dropped", figures: "Detections",
  feeds: "Where it hears", daemon: "Daemon", events: "Events", filled: "Filled in from the journal", lost: "Lost",
  spool: "Spool", waiting: "Records in it",
  states: { up: "Up", connecting: "Connecting", away: "Away", gone: "Gone for good", off: "Cannot be used" },
  causes: { stale: "too old", refused: "refused", spool_full: "no room in the spool", disk: "the spool's disk" },
  repeated: (n) => `${plural(n, "record", "records")} sent again`,
  oldest: (long) => `the oldest for ${long}`,
  leftOut: ({ filtered, thinned }) => (thinned ? `${filtered} not wanted, ${thinned} too soon after another` : `${filtered} not wanted`),
  sent: ({ sent, thinned, failed }) => `${sent} sent, ${thinned} thinned${failed ? `, ${failed} failed` : ""}`,
  drops: "Records were dropped: the page of the bridge says why.",
  notKept: (reason) => `Nothing can be kept in its spool: ${reason}`,
};
