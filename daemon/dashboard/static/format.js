// Numbers and times as people read them. The browser's own language decides their form.
const number = (digits) => new Intl.NumberFormat(undefined, { maximumFractionDigits: digits });
const whole = number(0);
const tenth = number(1);
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const hour = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const DASH = "–";
const known = (form) => (value, ...more) => (value === null || value === undefined || Number.isNaN(value) ? DASH : form(value, ...more));

export const count = known((value) => whole.format(value));
export const fps = known((value) => (value >= 100 ? whole : tenth).format(value));
export const ms = known((value) => `${(value >= 100 ? whole : tenth).format(value)} ms`);
export const nsAsMs = known((value) => ms(value / 1e6));
export const percent = known((value) => `${whole.format(value)} %`);
export const watts = known((value) => `${whole.format(value)} W`);
export const mib = known((value) => `${whole.format(value / (1 << 20))} MiB`);
export const seconds = known((value) => (value < 90 ? `${tenth.format(value)} s` : duration(value)));

export const timeOf = known((s) => clock.format(new Date(s * 1000)));
export const hourOf = known((s) => hour.format(new Date(s * 1000)));
export const dateOf = known((s) => full.format(new Date(s * 1000)));
/** A time of day, with the date where that is another one than now's. */
export const momentOf = known((s, now) => (new Date(s * 1000).toDateString() === new Date(now * 1000).toDateString() ? timeOf(s) : dateOf(s)));
export const isoOf = known((s) => new Date(s * 1000).toISOString());

export function duration(s) {
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}
