// What a wall looks like stands in its address: who opens a link sees the same wall. A browser that opens the wall without
// any of it gets what it had last.
import { useEffect } from "../html.js";
import { useRemembered } from "../parts.js";
import { route, setQuery } from "../router.js";
import { useStore } from "../store.js";
import { GRIDS } from "./layout.js";

const INITIAL = { layout: "auto", sort: "activity", group: "none", live: "on", pin: "", find: "", full: "" };
const CHOICES = { layout: Object.keys(GRIDS), sort: ["activity", "name"], group: ["none", "daemon", "state", "prefix"], live: ["on", "off"] };
const PASSING = ["find", "full"]; // belong to a link, and not to what a browser had last

/** The wall of a query; what is unknown there is as it is at first. */
export function wallOf(query) {
  const found = { ...INITIAL };
  for (const name of Object.keys(INITIAL)) {
    const value = query.get(name);
    if (value !== null && (CHOICES[name]?.includes(value) ?? true)) found[name] = value;
  }
  return { ...found, pin: found.pin.split(",").filter(Boolean) };
}

/** The values of its query. The layout is always there: an address without one is that of no certain wall. */
export function queryOf(wall) {
  const values = { ...wall, pin: wall.pin.join(",") };
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => name === "layout" || value !== INITIAL[name]));
}

/** @returns [the wall, a function that changes some of it, and the address with it] */
export function useWall() {
  const { query } = useStore(route);
  const [last, remember] = useRemembered("wall.last", null);
  const isPlain = !Object.keys(INITIAL).some((name) => query.has(name));
  const wall = wallOf(isPlain && last ? new URLSearchParams(last) : query);
  const change = (changes) => {
    const next = queryOf({ ...wall, ...changes });
    remember(Object.fromEntries(Object.entries(next).filter(([name]) => !PASSING.includes(name))));
    setQuery(next);
  };
  useEffect(() => {
    if (isPlain && last) setQuery(last);
  }, [isPlain]);
  return [wall, change];
}

/** The named walls that this browser keeps: [{name, query}, ...]. */
export function useViews() {
  const [views, setViews] = useRemembered("wall.views", []);
  const others = (name) => views.filter((view) => view.name !== name);
  return {
    views,
    keep: (name, wall) => setViews([...others(name), { name, query: queryOf({ ...wall, full: "" }) }].sort((a, b) => a.name.localeCompare(b.name))),
    forget: (name) => setViews(others(name)),
  };
}

export const linkOf = (query) => `/?${new URLSearchParams(query)}`;
