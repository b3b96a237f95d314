// The rules of one source: drawn on its picture, tried on the last minute, saved without a restart.
import { at, get } from "../api.js";
import * as changes from "../changes.js";
import { Canvas } from "../editor/canvas.js";
import { anchored, wouldCount } from "../editor/counting.js";
import { RulePanel } from "../editor/panel.js";
import { Past } from "../editor/past.js";
import * as shapes from "../editor/shapes.js";
import * as format from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { daemons, keyOf, loaded, mayChange, refresh, sources } from "../model.js";
import { announce, Empty, Icon, Notice, useRemembered } from "../parts.js";
import { Picture, ratioOf } from "../picture.js";
import { guard } from "../router.js";
import { useStore } from "../store.js";
import { t } from "../texts.js";

const RECENT_MS = 5000;
const TYPES = ["zone", "line", "gate"];
const NO_OVERLAY = {};

export default function Rules({ route }) {
  const [daemon, id] = route.parts;
  const listed = useStore(sources).get(keyOf(daemon, id));
  const [{ base, version }, setState] = useState({ base: null, version: 0 });
  const [failure, setFailure] = useState(null);
  // Work is not lost with a daemon that goes, and its row with it.
  const kept = useRef(null);
  kept.current = listed ?? kept.current;
  const row = kept.current;
  const open = (theirs) => setState((before) => ({ base: theirs, version: before.version + 1 }));
  useEffect(() => {
    changes.load(daemon, id).then(open, (error) => setFailure(error.message));
  }, [daemon, id]);
  if (!row && loaded.value) return html`<h1>${t.rules.title(id)}</h1><${Empty} title=${t.camera.missing(daemon, id)} />`;
  // Without the daemon's API the list of sources has the rules as well.
  const found = base ?? (failure && row ? { config: { rules: row.rules }, tag: null } : null);
  if (!row || !found) return html`<h1>${t.rules.title(id)}</h1><p class="quiet">${t.loading}</p>`;
  return html`<${Editor} key=${version} row=${row} opened=${found} reopen=${open} isGone=${!listed} />`;
}

function useRecent(row) {
  const [recent, setRecent] = useState({ tracks: [], covered_s: 0 });
  useEffect(() => {
    let [timer, stopped] = [0, false];
    const load = async () => {
      const found = await get(`/api/sources/${at(row.daemon, row.id)}/recent?seconds=60`).catch(() => null);
      if (stopped) return;
      if (found) setRecent(found);
      timer = setTimeout(load, RECENT_MS);
    };
    load();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [row.daemon, row.id]);
  return recent;
}

/** The rules with undo and redo; a change that the daemon would refuse is not made, and the reason is kept. */
function useEdits(initial) {
  const history = useRef(null);
  history.current ??= new shapes.History(initial.filter((rule) => rule.type !== "object").map(shapes.fromConfig));
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

function freeName(type, rules) {
  const names = new Set(rules.map((rule) => rule.name));
  for (let n = 1; ; n += 1) if (!names.has(`${type}-${n}`)) return `${type}-${n}`;
}

/** Saves to the state that was loaded. If somebody else has saved meanwhile, `theirs` is that, and nothing is changed. */
function useSaving(row, opened, reopen, edits) {
  const [base, setBase] = useState(opened);
  const [saving, setSaving] = useState(false);
  const [told, setTold] = useState(null); // {kind, words} of the last save
  const [theirs, setTheirs] = useState(null);
  const save = async (from = base) => {
    const state = edits.now;
    const others = from.config.rules.filter((rule) => rule.type === "object");
    setSaving(true);
    setTold(null);
    setTheirs(null);
    try {
      setBase(await changes.change(row.daemon, row.id, from, { rules: [...state.map(shapes.toConfig), ...others] }));
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

function Editor({ row, opened, reopen, isGone }) {
  const edits = useEdits(opened.config.rules);
  const { rules } = edits;
  const [selected, setSelected] = useState(null);
  const [drawing, setDrawing] = useState(null);
  const [snap, setSnap] = useRemembered("rules.snap", true);
  const { save, saving, told, theirs, base } = useSaving(row, opened, reopen, edits);
  const { tracks, covered_s: covered, image } = useRecent(row);
  const aspect = image ? image[0] / image[1] : 1;
  const anchor = rules[selected?.rule]?.rest.anchor ?? "bottom"; // the dots are those that count for the chosen rule
  const dots = useMemo(() => tracks.map(({ track, points }) => ({ track, points: anchored(points, anchor, 1).map(({ at, place }) => [at, ...place]) })), [tracks, anchor]);
  const may = mayChange();
  const isUnsaved = edits.isChanged || drawing !== null;
  useEffect(() => (isUnsaved ? guard(() => confirm(t.rules.leave)) : undefined), [isUnsaved]);

  const start = (type) => {
    setSelected(null);
    edits.refuse(null);
    setDrawing({ type, parts: [], current: [] });
    document.querySelector(".editor-picture svg").focus();
    announce(`${t.rules.hint[type]} ${t.rules.hint.keyboard}`);
  };
  const finish = () => {
    const { type, parts, current, into = null } = drawing;
    const done = [...parts, current];
    const draft = { type, name: freeName(type, rules), parts: done, rest: {} };
    const problem = shapes.problemOf(type === "gate" && done.length < 2 ? { ...draft, type: "line" } : draft);
    if (problem) {
      edits.refuse(problem);
      announce(problem);
      return;
    }
    if (type === "gate" && done.length < 2) return void setDrawing({ type, parts: done, current: [] });
    setDrawing(null);
    if (into !== null) {
      edits.change(into, { ...rules[into], parts: [...rules[into].parts, current] });
      setSelected({ rule: into, part: rules[into].parts.length, index: null });
    } else if (edits.add(draft)) setSelected({ rule: rules.length, part: 0, index: null });
  };
  const remove = ({ rule, part, index }) => {
    const old = rules[rule];
    if (index === null) {
      setSelected(null);
      return void edits.remove(rule);
    }
    const next = shapes.deletePoint(old, part, index);
    if (!next) return void edits.refuse(t.rules.few(shapes.leastPoints(old)));
    setSelected({ rule, part, index: null });
    edits.change(rule, next);
    return undefined;
  };
  const on = {
    draw: (point) => setDrawing((now) => ({ ...now, current: [...now.current, point] })),
    undoPoint: () => setDrawing((now) => ({ ...now, current: now.current.slice(0, -1) })),
    cancel: () => setDrawing(null),
    finish, remove, select: setSelected, drag: edits.drag, drop: edits.change, change: edits.change,
  };
  const onKeyDown = (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || typing) return;
    event.preventDefault();
    if (event.shiftKey) edits.redo();
    else edits.undo();
  };
  const ratio = ratioOf(row) ?? 16 / 9;
  return html`<div class="stack" onKeyDown=${onKeyDown}>
    <div class="bar"><h1>${t.rules.title(row.id)}</h1><a href=${`/camera/${at(row.daemon, row.id)}`}>${t.rules.back}</a></div>
    ${!may && html`<${Notice}>${t.rules.readOnly}<//>`}
    ${isGone && html`<${Notice} kind="warning">${t.camera.missing(row.daemon, row.id)}<//>`}
    ${rules.some((rule) => rule.wasPixels) && html`<${Notice}>${t.rules.pixels}<//>`}
    <div class="editor">
      <div class="editor-stage">
        ${may && html`<${Tools} ...${{ drawing, start, edits, snap, setSnap, save, saving }} />`}
        <${Canvas} ...${{ rules, drawing, selected, tracks: dots, ratio, snap, on }} locked=${!may}>
          <${Picture} row=${row} live=${false} options=${NO_OVERLAY} /><//>
        <p class="hint" role="status">${drawing ? `${t.rules.hint[drawing.type]} ${t.rules.hint.keyboard}` : selected ? t.rules.hint.select : t.rules.hint.idle}</p>
        ${edits.problem && html`<${Notice} kind="error">${edits.problem}<//>`}
        ${told && html`<${Notice} kind=${told.kind}>${told.words}<//>`}
        ${theirs && html`<${Meanwhile} base=${base} theirs=${theirs} onTheirs=${() => reopen(theirs)} onMine=${() => save(theirs)} />`}
        <p class="quiet">${tracks.length ? `${t.rules.points60(tracks.length, anchor)} ${t.rules.anchorSays}` : t.rules.previewNone}</p>
      </div>
      <${Side} ...${{ row, rules, tracks, aspect, covered, selected, setSelected, edits, may, remove }} onAddPart=${(into) => setDrawing({ type: "zone", parts: [], current: [], into })} />
    </div></div>`;
}

/** Somebody else has saved: what, and whose rules are to be. */
function Meanwhile({ base, theirs, onTheirs, onMine }) {
  return html`<${Notice} kind="error"><p>${t.rules.meanwhile} ${t.rules.differences(shapes.differences(base.config.rules, theirs.config.rules))}</p>
    <p class="dialog-actions"><button onClick=${onTheirs}>${t.rules.takeTheirs}</button>
      <button class="danger" onClick=${onMine}>${t.rules.saveMine}</button></p><//>`;
}

function Tools({ drawing, start, edits, snap, setSnap, save, saving }) {
  const names = { zone: t.rules.addZone, line: t.rules.addLine, gate: t.rules.addGate };
  return html`<div class="controls tools">
    ${TYPES.map((type) => html`<button aria-pressed=${drawing?.type === type} onClick=${() => start(type)}>${names[type]}</button>`)}
    <button class="icon-only" aria-label=${t.rules.undo} title=${t.rules.undo} disabled=${!edits.canUndo} onClick=${edits.undo}><${Icon} name="undo" /></button>
    <button class="icon-only" aria-label=${t.rules.redo} title=${t.rules.redo} disabled=${!edits.canRedo} onClick=${edits.redo}><${Icon} name="redo" /></button>
    <label class="switch"><input type="checkbox" role="switch" checked=${snap} onChange=${(event) => setSnap(event.target.checked)} /><span>${t.rules.snap}</span></label>
    <button class="primary" disabled=${!edits.isChanged || saving} onClick=${() => save()}>${saving ? t.rules.saving : t.rules.save}</button>
    ${edits.isChanged && html`<span class="quiet">${t.rules.unsaved}</span>`}
  </div>`;
}

const saysOf = (rule, tracks, aspect) => {
  const found = wouldCount(rule, tracks, aspect);
  return "entered" in found ? t.rules.wouldZone(found.entered) : t.rules.wouldLine(found.forward, found.backward);
};

function Side({ row, rules, tracks, aspect, covered, selected, setSelected, edits, may, remove, onAddPart }) {
  const says = useMemo(() => rules.map((rule) => saysOf(rule, tracks, aspect)), [rules, tracks]);
  const chosen = selected && rules[selected.rule];
  const isRecorded = useStore(daemons).get(row.daemon)?.recordings;
  return html`<aside class="editor-side">
    <section><h2>${t.rules.list} <small>${t.rules.preview(format.seconds(covered))}</small></h2>
      ${!rules.length && html`<p class="quiet">${t.rules.empty}</p>`}
      <ul class="rule-list">${rules.map((rule, number) => html`<li key=${number}>
        <button aria-pressed=${selected?.rule === number} onClick=${() => setSelected({ rule: number, part: 0, index: null })}>
          <span class=${`kind kind-${rule.type}`}>${t.rules.kinds[rule.type]}</span><b>${rule.name}</b><span class="quiet would">${says[number]}</span></button></li>`)}</ul></section>
    ${chosen && html`<${RulePanel} key=${selected.rule} rule=${chosen} selected=${selected} locked=${!may} onSelect=${setSelected}
      onChange=${(rule) => edits.change(selected.rule, rule)} onRemove=${remove} onAddPart=${() => onAddPart(selected.rule)} />`}
    ${chosen && isRecorded && html`<${Past} key=${`past ${selected.rule}`} row=${row} rule=${chosen} />`}
  </aside>`;
}
