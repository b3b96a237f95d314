"""Several models in one daemon: each gives what it gives alone, and every frame of each is accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from daemon.cli import invoke
from lookout.messages import AccountMetrics, Detections, Dropped, Message, Metrics, ModelMetrics, SourceMetrics
from tests.support import clips
from tests.support.daemon import DEMO_MODEL, PATIENCE_S, ROOT, Lookout, all_of, is_state, receive_until

_HEAD = ROOT / "tests" / "data" / "heads" / "yolov8.onnx"
_TIMES = ("instance", "session", "captured_at", "latency", "dropped", "index", "model")
Rows = Mapping[str, Sequence[dict[str, Any]]]
"""Records of messages by source."""


def _replay(
    folder: Path, models: dict[str, object], sources: Sequence[dict[str, object]], **more: object
) -> list[Message]:
    """All messages of a lossless run."""
    folder.mkdir()
    config: dict[str, object] = {
        "sources": [*sources],
        "board": {"mode": "lossless"},
        "publisher": {"wait_for_subscriber_s": PATIENCE_S, "high_water_mark": 100_000},
        **models,
        **more,
    }
    ids = [str(source["id"]) for source in sources]
    with Lookout(folder, config) as lookout, lookout.subscribe("detections", "status", "metrics") as subscriber:
        messages = receive_until(subscriber, all_of(*(is_state(id, "ended") for id in ids)), timeout_s=500)
        while (message := subscriber.receive(0.5)) is not None:
            messages.append(message)
        assert lookout.process.wait(PATIENCE_S) == 0, lookout.log()
        assert subscriber.lost == {}
    return messages


def _found(messages: Sequence[Message], model: str | None) -> Rows:
    """What a model found, without what differs from run to run.

    Args:
        model: its name; None for a daemon with one model.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        if isinstance(message, Detections) and message.model.id == (model or msgspec.UNSET):
            record: dict[str, Any] = msgspec.to_builtins(message)
            rows.setdefault(message.source, []).append({k: v for k, v in record.items() if k not in _TIMES})
    return rows


def _sum(dropped: Dropped) -> int:
    return sum(msgspec.structs.astuple(dropped))


def _add_up(metrics: Metrics, shared: str, models: Sequence[str]) -> None:
    """Every captured frame is published or dropped, at each model that was to look at it, and nothing is left."""
    rows: list[SourceMetrics | AccountMetrics | ModelMetrics] = [*metrics.sources.values(), *metrics.models.values()]
    rows += metrics.sources[shared].models.values()
    for row in rows:
        assert row.captured == row.published + _sum(row.dropped)
        assert row.in_flight == 0
    own: SourceMetrics = metrics.sources[shared]
    assert [*own.models] == [*models]
    assert len({row.captured for row in own.models.values()}) == 1
    assert own.captured == sum(row.captured for row in own.models.values())
    assert sum(row.published for row in metrics.models.values()) == sum(r.published for r in metrics.sources.values())
    assert {name: row.sources for name, row in metrics.models.items()} == dict.fromkeys(models, 3)


def _compare(
    folder: Path, models: Mapping[str, dict[str, object]], plays: Sequence[dict[str, object]], **more: object
) -> Rows:
    """Five sources, two for each model and the last for both, give what two daemons give.

    Returns:
        What both found in the last.
    """
    first, second = models
    looks = [[first], [first], [second], [second], [first, second]]
    named = [{**play, "id": f"s{number}", "model": own} for number, (play, own) in enumerate(zip(plays, looks))]
    together = _replay(folder / "together", {"models": {**models}}, named, **more)
    for name, model in models.items():
        own = [{**play, "id": f"s{n}"} for n, (play, seen_by) in enumerate(zip(plays, looks)) if name in seen_by]
        alone = _found(_replay(folder / name, {"model": model}, own, **more), None)
        seen = _found(together, name)
        assert seen.keys() == alone.keys() == {str(row["id"]) for row in own}
        assert all([row["seq"] for row in rows] == [*range(len(rows))] for rows in seen.values())
        assert seen == alone
    _add_up([message for message in together if isinstance(message, Metrics)][-1], "s4", [first, second])
    both = [message for message in together if isinstance(message, Detections) and message.source == "s4"]
    assert [message.index for message in both] == [*range(len(both))]
    return {name: _found(together, name)["s4"] for name in models}


@pytest.mark.needs("ffmpeg")
@pytest.mark.timeout(300)
def test_two_models_give_what_two_daemons_give(tmp_path: Path) -> None:
    """Recordings and drawn streets, in capture processes and not; one source is for both models."""
    clip = clips.pattern(tmp_path / "clip.mp4", seconds=2)
    drawn: dict[str, object] = {"type": "synthetic", "pace": "fast", "frames": 40, "width": 160, "height": 120}
    played: dict[str, object] = {"type": "av", "url": str(clip), "pace": "fast"}
    models: dict[str, dict[str, object]] = {
        "street": {"path": str(DEMO_MODEL), "threads": 1},
        "small": {"path": str(_HEAD), "threads": 1, "confidence": 0.01, "max_batch": 2, "lanes": 2},
    }
    both = _compare(tmp_path, models, [drawn, played, drawn, played, played])
    assert any(row["detections"] for row in both["small"])


def test_check_names_each_model_and_what_a_picture_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    drawn: dict[str, object] = {"type": "synthetic", "width": 160, "height": 120}
    config = {
        "models": {"street": {"path": str(DEMO_MODEL), "threads": 1}, "small": {"path": str(_HEAD), "threads": 1}},
        "sources": [{**drawn, "id": "a", "model": "small"}, {**drawn, "id": "b", "model": ["street", "small"]}],
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    assert invoke(["check", "--running", "-c", str(file)]) == 0
    said = capsys.readouterr().out
    for words in ("Model street, for b", "Model small, for a, b", "model small does", "alone: one counts as"):
        assert words in said


@pytest.mark.needs("data")
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("processes", [0, 2])
def test_real_models_on_real_recordings(data: Path, tmp_path: Path, processes: int) -> None:
    clip = data / "videos" / "one-by-one-person-detection.mp4"
    short = clips.once(tmp_path, "short.mp4", lambda path: clips.ffmpeg("-i", clip, "-t", "5", "-c", "copy", path))
    played: dict[str, object] = {"type": "av", "url": str(short), "pace": "fast"}
    models: dict[str, dict[str, object]] = {
        "nano": {"path": str(data / "models" / "yolox_nano.onnx"), "labels": "coco", "threads": 1},
        "n": {"path": str(data / "models" / "yolov8n.onnx"), "threads": 1},
    }
    both = _compare(tmp_path, models, [played] * 5, capture_processes=processes)
    assert all(any(row["detections"] for row in rows) for rows in both.values())
