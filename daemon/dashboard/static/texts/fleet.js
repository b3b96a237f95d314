// Words of the page of fleets.
import { plural } from "./plural.js";

export const fleetTexts = {
  title: "Fleet", none: "No daemon of this page is in a fleet.",
  summary: (row, owned) => `${plural(row.sources.length, "source", "sources")}, ${owned} owned, ${row.unplaced} unplaced. ${row.placer ? `Placer: ${row.placer}.` : "No member is the placer: no source is placed."}`,
  failed: (name, reason) => `Fleet ${name}: ${reason}`,
  coordinatorAway: (member) => `${member} cannot reach the coordinator. Its sources go on, and what you see may be old.`,
  problem: (key, reason) => `A record cannot be read: ${key}: ${reason}`,
  members: "Members", member: "Member", state: "State", owned: "Sources", load: "Load", notes: "Notes", actions: "Actions",
  sources: "Sources", source: "Source", owner: "Owner", reason: "Reason", search: "Search sources and members", find: "Search", unsettled: "Only sources without their owner",
  allSettled: "Every source has its owner.", found: (shown, all) => `${shown} of ${all} shown`,
  ofWanted: (owned, wanted) => (owned === wanted ? `${owned}` : `${owned} of ${wanted}`),
  losses: (n) => `lost ${plural(n, "time", "times")} within an hour`, heldDown: "held down", pinned: "pinned",
  memberStates: { ready: "Ready", starting: "Starting", leaving: "Leaving", drained: "Drained", gone: "Gone" },
  sourceStates: { owned: "Owned", claiming: "Claiming", moving: "Moving", waiting: "Unplaced", disabled: "Disabled" },
  drain: "Drain", undrain: "Undrain", drainTitle: (name) => `Drain ${name}?`,
  drainWords: (n) => `${plural(n, "source moves", "sources move")} to other members, as far as they have room. Each is interrupted for a moment.`,
  why: "Reason", whyHint: "Shown to everybody.", whyDefault: "maintenance",
  drained: (name, n) => `${name} is drained${n ? `; ${plural(n, "source has", "sources have")} no other place` : ""}`,
  undrained: (name) => `${name} gets sources again`,
};
