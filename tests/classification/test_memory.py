"""The GPU memory of classifiers: it is in the plan, and the first model and the decoders leave it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from daemon.build import build
from daemon.classification.open_models import open_classifiers
from daemon.config.model import ClassifierConfig, GpuConfig
from daemon.config.root import Config
from daemon.config.sources import TrackingConfig
from daemon.control.plan import classifier_options, decoding_memory, with_classifiers
from daemon.seams import Seams
from daemon.sources.decode import NoHardwareDecoder
from detectors.fake.detector import FakeDetector
from detectors.port import ModelInfo, Options
from tests.lifetimes.running import STREET, config_of

MIB = 1 << 20


class Planned(FakeDetector):
    """A detector with a plan of GPU memory."""

    def __init__(self, options: Options, mib: int) -> None:
        super().__init__(options)
        self.opened_with = options
        self.info = replace(self.info, memory=(("engine", mib * MIB),))


def _config(limit_mib: int | None = None) -> Config:
    rows = [ClassifierConfig(name=name, path=Path(name), wanted=["dark"], max_pending=9) for name in ("color", "kind")]
    return config_of(
        STREET, tracking=TrackingConfig(enabled=True), classifiers=rows, gpu=GpuConfig(memory_limit_mib=limit_mib)
    )


@pytest.fixture
def opened() -> list[Planned]:
    """Two classifiers of 30 MiB each."""
    config, found = _config(), list[Planned]()

    def open_one(_: object, options: Options) -> Planned:
        found.append(Planned(options, 30))
        return found[-1]

    jobs = [(row.name, classifier_options(config, row)) for row in config.classifiers]
    open_classifiers(open_one, "fake", jobs)
    return found


def test_a_classifier_leaves_the_memory_of_those_before_it(opened: list[Planned]) -> None:
    assert [one.opened_with.reserved for one in opened] == [0, 30 * MIB]
    assert [one.opened_with.parts for one in opened] == [9, 9]


def test_decoders_leave_the_memory_of_classifiers(opened: list[Planned]) -> None:
    config, model = _config(500), Planned(Options(Path("m")), 100).info
    planned = with_classifiers(model, {"color": opened[0].info, "kind": opened[1].info})
    assert planned.memory == (("engine", 100 * MIB), ("classifier color", 30 * MIB), ("classifier kind", 30 * MIB))
    assert decoding_memory(config, planned) == (500 - 160) * MIB


def test_a_classifier_without_gpu_memory_has_no_row() -> None:
    info = FakeDetector(Options(Path("m"))).info
    assert with_classifiers(info, {"color": info}) == info


def test_a_daemon_counts_its_classifiers() -> None:
    """The first model is opened with what they leave, and the plan has a row for each."""
    reserved, seen = list[int](), list[ModelInfo]()

    def open_first(_: object, options: Options) -> Planned:
        reserved.append(options.reserved)
        return Planned(options, 100)

    def find_hardware(_: Config, model: ModelInfo) -> NoHardwareDecoder:
        seen.append(model)
        return NoHardwareDecoder("none here")

    app = build(
        _config(),
        Seams(
            open_detector=open_first,
            open_classifier=lambda _, options: Planned(options, 30),
            find_hardware=find_hardware,
        ),
    )
    try:
        assert reserved == [60 * MIB]
        assert seen[0].memory_bytes == 160 * MIB
        assert dict(app.parts.memory_plan) == {
            "engine": 100 * MIB,
            "classifier color": 30 * MIB,
            "classifier kind": 30 * MIB,
            "decoding": 0,
        }
    finally:
        app.stop()


def test_a_limit_counts_for_classifiers_too() -> None:
    config = _config(500)
    assert classifier_options(config, config.classifiers[0]).memory_limit == 500 * MIB
