// Changes of the rules of one source: with undo and redo, and saved without a loss of what others have saved.
import * as changes from "../changes.js";
import { useEffect, useRef, useState } from "../html.js";
import { daemons, refresh } from "../model.js";
import { announce } from "../parts.js";
import { t } from "../texts.js";
import * as shapes from "./shapes.js";

/** The rules with undo and redo; a change that the daemon would refuse is not made, and the reason is kept. */
export function useEdits(initial) {
  const history = useRef(null);
  history.current ??= new shapes.History(initial.map(shapes.fromConfig));
  const saved = useRef(history.current.now);
  const [, redraw] = useState(0);
  const [dragged, setDragged] = useState(null); // [number, rule] while it is dragged
  const [refusal, setRefusal] = useState(null);
  const { now, past, future } = history.current;
  const again = () => redraw((n) => n + 1);
  const commit = (next) => {
    const problem = shapes.problemOfAll(next);
    setRefusal(problem);
    setDragged(null);
    if (!problem) history.current.commit(next);
    else announce(`${t.rules.refused}: ${problem}`);
    again();
    return !problem;
  };
  const step = (name) => () => {
    history.current[name]();
    setRefusal(null);
    again();
  };
  return {
    rules: dragged ? now.map((rule, i) => (i === dragged[0] ? dragged[1] : rule)) : now,
    problem: dragged ? shapes.problemOf(dragged[1]) : refusal,
    isChanged: now !== saved.current,
    canUndo: past.length > 0,
    canRedo: future.length > 0,
    undo: step("undo"),
    redo: step("redo"),
    drag: (number, rule) => setDragged(rule && [number, rule]),
    change: (number, rule) => commit(now.map((old, i) => (i === number ? rule : old))),
    add: (rule) => commit([...now, rule]),
    remove: (number) => commit(now.filter((_, i) => i !== number)),
    refuse: (problem) => setRefusal(problem),
    now,
    markSaved: (state) => {
      saved.current = state;
      again();
    },
  };
}

export function freeName(type, rules) {
  const names = new Set(rules.map((rule) => rule.name.toLowerCase())); // the daemon takes two cases of a name for one
  for (let n = 1; ; n += 1) if (!names.has(`${type}-${n}`)) return `${type}-${n}`;
}

/** Saves to the state that was loaded. If somebody else has saved meanwhile, `theirs` is that, and nothing is changed. */
export function useSaving(row, opened, reopen, edits) {
  const [base, setBase] = useState(opened);
  const [saving, setSaving] = useState(false);
  const [told, setTold] = useState(null); // {kind, words} of the last save
  const [theirs, setTheirs] = useState(null);
  const save = async (from = base) => {
    const state = edits.now;
    setSaving(true);
    setTold(null);
    setTheirs(null);
    try {
      setBase(await changes.change(row.daemon, row.id, from, { rules: state.map(shapes.toConfig) }));
      edits.markSaved(state);
      const lasts = daemons.value.get(row.daemon)?.persists;
      setTold({ kind: lasts ? "info" : "warning", words: lasts ? t.rules.saved : `${t.rules.saved} ${t.sources.forgets(row.daemon)}` });
      announce(t.rules.saved);
      refresh().catch(() => {});
    } catch (error) {
      if (error instanceof changes.Conflict) setTheirs(error.theirs);
      else setTold({ kind: "error", words: error.message });
    }
    setSaving(false);
  };
  const look = async () => {
    if (saving || changes.same(row.rules, base.config.rules)) return;
    const now = await changes.load(row.daemon, row.id).catch(() => null);
    if (!now || changes.same(now.config.rules, latest.current.base.config.rules)) return;
    if (latest.current.isChanged) setTheirs(now);
    else reopen(now);
  };
  const latest = useRef(null);
  latest.current = { base, isChanged: edits.isChanged };
  useEffect(() => void look(), [JSON.stringify(row.rules)]);
  return { save, saving, told, theirs, base };
}
