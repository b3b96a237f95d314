"""The daemon on the stub of a GPU: repeated model swaps."""

from __future__ import annotations

import signal
from collections import defaultdict
from pathlib import Path

import yaml

from lookout.client import Subscriber
from lookout.messages import Detections, Message
from tests.support.daemon import PATIENCE_S, Lookout, receive_until
from tests.support.models import toy_model
from tests.trt.parts import BACKEND

_SOURCES, _SWAPS = 6, 2


def test_a_model_swap_loses_nothing(toy: Path, tmp_path: Path) -> None:
    """Each frame is published once, in order, with the name of its model; lanes of the old model end."""
    models = [toy, toy_model(tmp_path / "other.onnx", gain=0.5)]
    picture = {"type": "synthetic", "width": 64, "height": 64, "fps": 20}
    config: dict[str, object] = {
        "sources": [{"id": f"s{number}", **picture} for number in range(_SOURCES)],
        "model": {"path": str(toy), "backend": BACKEND, "max_batch": 4, "cache": str(tmp_path / "cache")},
        "lanes": 2,
        "gpu": {"frame_size": [64, 64], "mps": "off"},
        "board": {"mode": "lossless"},
        "capture_processes": 0,
        "monitor": {"interval_s": 0.5},
        "publisher": {"wait_for_subscriber_s": PATIENCE_S, "high_water_mark": 100_000},
    }
    seen: dict[str, list[Detections]] = defaultdict(list)
    with Lookout(tmp_path, config) as lookout:
        with lookout.subscribe("detections") as subscriber:
            for swap in range(_SWAPS + 1):
                model = models[swap % 2]
                if swap:
                    whole = yaml.safe_load((tmp_path / "config.yaml").read_text())
                    whole["model"]["path"] = str(model)
                    (tmp_path / "config.yaml").write_text(yaml.safe_dump(whole))
                    lookout.process.send_signal(signal.SIGHUP)
                _receive(subscriber, seen, model.stem)
        code = lookout.stop()
        log = lookout.log()
    assert code == 5  # a lossless replay that was stopped
    assert "detector failed" not in log
    for source, messages in seen.items():
        assert [message.seq for message in messages] == list(range(len(messages))), source
        names = [message.model.name for message in messages]
        turns = [name for name, before in zip(names, [None, *names]) if name != before]
        assert turns == [models[swap % 2].stem for swap in range(_SWAPS + 1)], source
    assert len(seen) == _SOURCES


def _receive(subscriber: Subscriber, seen: dict[str, list[Detections]], model: str) -> None:
    """Receive until each source has a few frames detected by this model."""

    def enough(message: Message) -> bool:
        assert isinstance(message, Detections)
        seen[message.source].append(message)
        counts = [sum(row.model.name == model for row in rows[-5:]) for rows in seen.values()]
        return len(counts) == _SOURCES and min(counts) == 5

    receive_until(subscriber, enough, timeout_s=3 * PATIENCE_S)
