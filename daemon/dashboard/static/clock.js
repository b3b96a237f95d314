// The clocks of others, as far as they can be known from here: a browser's own may be hours off.

const SAMPLES = 20;
const SLACK_MS = 20;

/** The server's monotonic clock, ms: a question and its answer say what it was between the two. */
export class Clock {
  constructor() {
    this.samples = []; // {took, offset}: ms between question and answer, and the server's clock less this one
    this.offset = null;
  }

  /** @param asked, told: this clock when the server was asked, and the server's when it answered */
  note(asked, told) {
    const heard = performance.now();
    const row = { took: heard - asked, offset: told - (asked + heard) / 2 };
    // Samples that cannot both be true are of clocks that drift, or of a machine that slept in between.
    const agrees = (other) => Math.abs(other.offset - row.offset) <= (other.took + row.took) / 2 + SLACK_MS;
    this.samples = [...this.samples.filter(agrees).slice(1 - SAMPLES), row];
    this.offset = this.samples.reduce((best, other) => (other.took < best.took ? other : best)).offset; // the quickest says most
  }

  /** The server's clock now; null while it is not known. */
  now() {
    return this.offset === null ? null : performance.now() + this.offset;
  }
}

let offset = 0; // s

/** The server says what time it is. What it says comes later than it was said, and never earlier. */
export function tellTime(seconds) {
  const found = seconds - Date.now() / 1000;
  // A message that took long is not believed; a clock that was set is.
  if (found > offset || Math.abs(found - offset) > 2) offset = found;
}

/** UTC by the server's clock, s. All times that are shown come from there. */
export const utc = () => Date.now() / 1000 + offset;
