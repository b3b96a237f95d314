// The rules of one source: drawn on its picture, tried on the last minute, saved without a restart.
import { at, get } from "../api.js";
import * as changes from "../changes.js";
import { Canvas } from "../editor/canvas.js";
import { anchored, wouldCount } from "../editor/counting.js";
import { freeName, useEdits, useSaving } from "../editor/edits.js";
import { RulePanel } from "../editor/panel.js";
import { Past } from "../editor/past.js";
import * as shapes from "../editor/shapes.js";
import * as format from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { daemons, keyOf, loaded, mayChange, sources } from "../model.js";
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

  const begun = drawing?.current.length || drawing?.parts.length;
  const cancel = () => {
    setDrawing(null);
    edits.refuse(null);
  };
  const undoPoint = () => {
    edits.refuse(null);
    if (!drawing.current.length) return cancel();
    return setDrawing((now) => ({ ...now, current: now.current.slice(0, -1) }));
  };
  const start = (type) => {
    if (begun && !confirm(t.rules.giveUp)) return;
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
    draw: (point) => {
      edits.refuse(null);
      setDrawing((now) => ({ ...now, current: [...now.current, point] }));
    },
    finish, remove, undoPoint, cancel, select: setSelected, drag: edits.drag, drop: edits.change, change: edits.change,
  };
  const onKeyDown = (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || typing) return;
    event.preventDefault();
    if (drawing) undoPoint(); // what is drawn, and nothing elsewhere
    else if (event.shiftKey) edits.redo();
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
        ${drawing && html`<div class="controls drawing">
          <button class="primary" onClick=${finish}>${t.rules.done}</button>
          <button onClick=${undoPoint} disabled=${!begun}>${t.rules.undoPoint}</button>
          <button onClick=${cancel}>${t.cancel}</button></div>`}
        <${Canvas} ...${{ rules, drawing, selected, tracks: dots, ratio, snap, on }} locked=${!may}>
          <${Picture} row=${row} live=${false} options=${NO_OVERLAY} /><//>
        <p class="hint" role="status">${drawing ? `${t.rules.hint[drawing.type]} ${t.rules.hint.keyboard}` : selected ? t.rules.hint.select : t.rules.hint.idle}</p>
        ${edits.problem && html`<${Notice} kind="error">${edits.problem}<//>`}
        ${told && html`<${Notice} kind=${told.kind}>${told.words}<//>`}
        ${theirs && html`<${Meanwhile} base=${base} theirs=${theirs} onTheirs=${() => reopen(theirs)} onMine=${() => save(theirs)} />`}
        <p class="quiet">${tracks.length ? `${t.rules.points60(tracks.length, anchor)} ${t.rules.anchorSays}` : row.tracking ? t.rules.previewQuiet : t.rules.previewNone}</p>
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
    <button class="icon-only" aria-label=${t.rules.undo} title=${t.rules.undo} disabled=${!edits.canUndo || drawing !== null} onClick=${edits.undo}><${Icon} name="undo" /></button>
    <button class="icon-only" aria-label=${t.rules.redo} title=${t.rules.redo} disabled=${!edits.canRedo || drawing !== null} onClick=${edits.redo}><${Icon} name="redo" /></button>
    <label class="switch"><input type="checkbox" role="switch" checked=${snap} onChange=${(event) => setSnap(event.target.checked)} /><span>${t.rules.snap}</span></label>
    <button class="primary" disabled=${!edits.isChanged || saving} onClick=${() => save()}>${saving ? t.rules.saving : t.rules.save}</button>
    ${edits.isChanged && html`<span class="quiet">${t.rules.unsaved}</span>`}
  </div>`;
}

const saysOf = (rule, tracks, aspect) => {
  if (rule.type === "object") return t.rules.wouldObject;
  const found = wouldCount(rule, tracks, aspect);
  const hours = rule.rest.active ? ` ${t.rules.ignoresHours}` : "";
  return ("entered" in found ? t.rules.wouldZone(found.entered) : t.rules.wouldLine(found.forward, found.backward)) + hours;
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
