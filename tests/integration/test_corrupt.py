"""Corrupt recordings: the daemon lives, nothing hangs, and the neighbours do not notice.

LOOKOUT_MUTANTS=1000 tries as many; each is made from its number, so that what fails can be made again.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic

import pytest

from daemon.messages import Detections, Message, Metrics, Status
from tests.support.daemon import Lookout
from tests.support.mutants import mutant, originals

pytestmark = [pytest.mark.needs("ffmpeg"), pytest.mark.slow, pytest.mark.timeout(1800)]
_COUNT = int(os.environ.get("LOOKOUT_MUTANTS", "60"))
_AT_ONCE = 20
_HANG_S = 10.0  # without a frame or a word of a source that has not ended


def test_mutated_recordings_hurt_nobody(tmp_path: Path) -> None:
    made = originals(tmp_path)
    for first in range(0, _COUNT, _AT_ONCE):
        _play([mutant(number, made, tmp_path) for number in range(first, min(first + _AT_ONCE, _COUNT))], tmp_path)


def _play(paths: list[Path], folder: Path) -> None:
    """All of them at once as fast as they go, beside a camera; each must end, or be given up with a reason."""
    names = {f"m{number}": path for number, path in enumerate(paths)}
    sources = [{"id": name, "type": "av", "url": str(path), "pace": "fast"} for name, path in names.items()]
    neighbour = {"id": "neighbour", "type": "synthetic", "fps": 10, "width": 64, "height": 36}
    config: dict[str, object] = {
        "model": {"path": "none", "backend": "fake"},
        "sources": [neighbour, *sources],
        # A recording that cannot be opened is tried for ever: the first refusal is an end here.
        "reconnect": {"initial_s": 60, "max_s": 60},
        "monitor": {"interval_s": 1},
        "publisher": {"wait_for_subscriber_s": 20},
    }
    open_ones, heard = set(names), dict.fromkeys(names, monotonic())
    seqs: list[int] = []
    last: Metrics | None = None
    with Lookout(folder, config) as lookout, lookout.subscribe() as subscriber:
        began = monotonic()
        while open_ones or len(seqs) < 30:
            message = subscriber.receive(0.5)
            assert lookout.process.poll() is None, (names, lookout.log()[-3000:])
            quiet = {name: str(names[name]) for name in open_ones if monotonic() - heard[name] > _HANG_S}
            assert not quiet, f"nothing for {_HANG_S} s of {quiet}"
            assert monotonic() - began < 300
            _note(message, open_ones, heard, seqs)
            last = message if isinstance(message, Metrics) else last
        assert lookout.stop() == 0
        log = lookout.log()
    unforeseen = [line for line in log.splitlines() if "Traceback" in line or "not foreseen" in line]
    assert not unforeseen, (names, unforeseen)
    # The camera beside them: every frame is there, or told of as superseded by a newer one.
    assert last is not None
    camera = last.sources["neighbour"]
    assert camera.dropped.decode_error == camera.dropped.stale == 0
    assert len(seqs) >= 0.9 * (seqs[-1] - seqs[0] + 1)


def _note(message: Message | None, open_ones: set[str], heard: dict[str, float], seqs: list[int]) -> None:
    if isinstance(message, Detections) and message.source == "neighbour":
        seqs.append(message.seq)
    elif isinstance(message, Detections | Status) and message.source in heard:
        heard[message.source] = monotonic()
        if isinstance(message, Status) and message.state in ("ended", "down"):
            open_ones.discard(message.source)
