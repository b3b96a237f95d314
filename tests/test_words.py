"""Identifiers are the field's standard terms, and sentences have a noun for a subject.

`WORDS` are forbidden anywhere in an identifier, `NAMES` only as a whole one. Packages in `NOT_YET` are not checked.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("daemon", "detectors", "calibration", "lookoutd")
NOT_YET: tuple[str, ...] = ()
WORDS = {
    "allowance": "quota, token bucket",
    "aside": "executor, quarantined",
    "bury": "reap",
    "copiers": "copy pool",
    "crew": "threads",
    "dear": "sensitive",
    "dearest": "most sensitive",
    "disown": "detach",
    "fewest": "min",
    "gathering": "selection",
    "judge": "evaluator, evaluate",
    "judged": "evaluated",
    "judging": "evaluation, test",
    "loose": "unfused",
    "mend": "restore",
    "mended": "restored",
    "mending": "restoration",
    "mourn": "on_lost",
    "nobody": "null",
    "obtain": "get_or_build",
    "outlet": "sender",
    "patience": "timeout",
    "roster": "manager",
    "said": "message, log",
    "say": "report, log",
    "says": "reports",
    "surroundings": "sinks",
    "told": "reported, received",
    "verdict": "accuracy_record, result",
    "whoever": "a noun",
    "wish": "requested",
    "wishes": "config, options",
}
NAMES = {
    "Audience": "Subscribers",
    "audience": "subscribers",
    "gate": "authenticator",
    "greet": "replay_status",
    "leaves_out": "skip_cause",
    "let_go": "release_done",
    "undecoded": "skip_ratio",
    "insists": "requires_gpu",
    "asks_gpu": "wants_gpu",
    "Away": "InBlockingCall",
    "Begin": "WorkerConfig",
    "Block": "SharedMemory",
    "Borrowed": "RemoteLease",
    "CapturedHere": "HostFrame, DeviceFrame",
    "Drawn": "SyntheticClip",
    "Gathering": "FrameSelection",
    "Into": "CaptureSinks",
    "Keep": "BoxFilter",
    "Kept": "SourceStore",
    "Look": "Predictions",
    "Marks": "ResourceSnapshot",
    "Offer": "Backend",
    "Order": "BuildRequest",
    "Place": "Slot",
    "Promise": "SLO",
    "Ring": "BufferPool",
    "Streams": "BenchRun",
    "Uses": "Heartbeat",
    "Wanted": "PostprocessParams",
    "Warmth": "Warmup",
    "Word": "BuildEvent",
    "ask": "submit, probe",
    "found_out": "collect_environment",
    "go_on": "step",
    "hand_over": "detach",
    "held_back": "signals_blocked",
    "lends": "outstanding",
    "look": "on_batch, check, sample, poll",
    "look_around": "housekeeping",
    "mend": "restore",
    "most": "max_..., limit",
    "least": "min_..., minimum",
    "longest": "max_...",
    "offer": "backend",
    "seam": "trt_compat",
    "take": "get, acquire, add, observe",
    "use": "make_current",
    "why_not": "unsupported_reason",
    "words_of": "message_of",
}
# Keys of files that users keep, and of methods that another library calls.
KEYS = {
    "calibration/evaluator.py": {"least"},
    "calibration/outcome.py": {"judging", "least"},
    "daemon/bench/engine.py": {"least", "most"},
    "detectors/accuracy_record.py": {"least"},
}
PRONOUN = re.compile(r"\b(?:Who|Whoever|Whose|What|That which|who (?:has|have))\b")
SENTENCE = re.compile(r"(?:^|[.:;] )(?:Who|Whoever|Whose|What|That which) |\bwho (?:has|have)\b")


def _files() -> Iterator[tuple[Path, str]]:
    """With their names from the top of the tree."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            top = name.count("/") == 1 and "daemon/*.py" in NOT_YET and name.startswith("daemon/")
            if not top and not name.startswith(NOT_YET):
                yield path, name


def _identifiers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def _standard(identifier: str) -> str | None:
    """The standard term for a forbidden identifier; None if it is allowed."""
    name = identifier.strip("_")
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return NAMES.get(name) or next((WORDS[word.lower()] for word in words if word.lower() in WORDS), None)


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments, with their first lines' numbers."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for offset, line in enumerate(node.value.value.split("\n")):
                yield node.lineno + offset, line.strip()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def test_identifiers_are_standard_terms() -> None:
    found: list[str] = []
    for path, name in _files():
        identifiers = [(1, path.stem), *_identifiers(ast.parse(path.read_text()))]
        found += [
            f"{name}:{line}: {identifier}: {standard}"
            for line, identifier in identifiers
            if identifier not in KEYS.get(name, ()) and (standard := _standard(identifier))
        ]
    assert not found, "\n".join(["", *dict.fromkeys(found)])


def test_sentences_have_a_noun_for_a_subject() -> None:
    found = [
        f"{name}:{line}: needs a noun: {prose}"
        for path, name in _files()
        if PRONOUN.search(text := path.read_text())
        for line, prose in _prose(text)
        if SENTENCE.search(prose)
    ]
    assert not found, "\n".join(["", *dict.fromkeys(found)])
