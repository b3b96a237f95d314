// Words of what is wrong: of the tray, and of reasons that systems and libraries give.
import { plural } from "./plural.js";

// What systems say, and what it means. The first that fits is put in its place.
const MEANINGS = [
  [/connection refused/i, "nothing answers there (connection refused)"],
  [/no route to host|network is unreachable|host is unreachable/i, "there is no way to that address (no route)"],
  [/name or service not known|temporary failure in name resolution|nodename nor servname provided|no address associated with hostname/i, "this name is not known to the network"],
  [/connection reset by peer|broken pipe/i, "the other end broke the connection"],
  [/(?:signal |operation |connection |read |request )?timed out|immediate exit requested/i, "no answer came in time"],
  [/(?:server returned )?401 unauthorized(?: \(authorization failed\))?|authorization failed/i, "user or password are wrong (401)"],
  [/(?:server returned )?404 not found/i, "there is no such stream (404)"],
  [/(?:server returned )?403 forbidden(?: \(access denied\))?/i, "this user may not see it (403)"],
  [/no such file or directory/i, "there is no such file"],
  [/no space left on device/i, "the disk is full"],
  [/permission denied/i, "it is not allowed (permission denied)"],
  [/invalid data found when processing input/i, "what comes is no video that can be read"],
];

/** A reason as people say it: numbers of errors are left out, and what a system says is explained. */
export function inWords(reason) {
  if (!reason) return reason;
  const plain = reason.replace(/\[Errno -?\d+\] ?/g, "").replace(/\b[A-Z][A-Za-z]*Error: /g, "");
  const found = MEANINGS.find(([pattern]) => pattern.test(plain));
  return found ? plain.replace(found[0], found[1]) : plain;
}

export const troubleTexts = {
  title: "Troubles",
  button: (n) => (n ? plural(n, "trouble", "troubles") : "No trouble"),
  none: "Nothing is wrong that this page knows of.",
  since: (time, long) => `Since ${time}, for ${long}`,
  next: (long) => `Next try in ${long}`,
  now: "It is tried now",
  again: "It is tried again and again",
  page: "The page's server",
  pageAway: "The connection is lost, and what you see is old.",
  daemon: (name) => `Daemon ${name}`,
  connecting: "No answer yet",
  api: (reason) => `Its HTTP API does not help: ${reason}`,
  source: (id, daemon) => (daemon ? `Camera ${id} at ${daemon}` : `Camera ${id}`),
  state: (state, reason) => (reason ? `${state}: ${reason}` : state),
  waits: "Connecting, and nothing came yet",
  partly: (reason) => `Up, but ${reason}`,
  store: (name, daemon) => `Recordings in ${name} at ${daemon}`,
  notWritten: (reason) => `Nothing is recorded there: ${reason}`,
  slow: "This browser",
  slowFor: (n) => `It, or its link, was too slow for ${plural(n, "message", "messages")} in the last minute. What is shown may be old.`,
  told: (words) => `New trouble: ${words}`,
  toldMany: (n) => `${n} new troubles`,
  over: (n) => (n ? `${plural(n, "trouble is", "troubles are")} left` : "No trouble is left"),
};
