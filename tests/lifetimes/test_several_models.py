"""Two models in one daemon: what happens to one leaves the other untouched, and verbs are safe beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import pytest

from daemon.config.http import HttpConfig
from daemon.config.model import ModelConfig
from daemon.errors import LookoutError
from daemon.redact import Secret
from detectors.factory import Backend
from detectors.fake.detector import FakeDetector
from detectors.port import DetectorError, Options
from tests.lifetimes.matrix import go_on
from tests.lifetimes.model_verbs import MODEL_VERBS, OTHERS
from tests.lifetimes.rig import Rig, dropped, wait_until
from tests.lifetimes.running import STREET, running, wait_up
from tests.lifetimes.verbs import ENDING, put_back

_GOING_ON = {name: verb for name, verb in OTHERS.items() if name not in ("start", *ENDING)}
_QUICK = ("change", "add", "worker dies", "rules hang", "SIGHUP")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One daemon for all pairs."""
    rig = Rig(tmp_path_factory.mktemp("several"), analysis="apart", several=True)
    with rig.signals():
        rig.start()
        rig.wait_ready()
        yield rig
        rig.app.request_stop()
    rig.end()


@pytest.mark.slow
@pytest.mark.parametrize("first", MODEL_VERBS)
def test_it_goes_on(rig: Rig, first: str) -> None:
    """Beside each other, and beside some of the others."""
    for second in MODEL_VERBS:
        _pair(rig, first, second)
    for other in _QUICK:
        _pair(rig, first, other)


@pytest.mark.long
@pytest.mark.parametrize("first", MODEL_VERBS)
def test_it_goes_on_beside_every_verb(rig: Rig, first: str) -> None:
    for other in _GOING_ON:
        _pair(rig, first, other)
        _pair(rig, other, first)


def _pair(rig: Rig, first: str, second: str) -> None:
    go_on(rig, {**MODEL_VERBS, **_GOING_ON}, (first, second), put_back)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["live", "lossless"])
@pytest.mark.parametrize("first", MODEL_VERBS)
def test_it_ends_meanwhile(tmp_path: Path, first: str, mode: str) -> None:
    rig = Rig(tmp_path, several=True, mode=mode)
    try:
        with rig.signals():
            rig.start()
            rig.wait_ready()
            end = MODEL_VERBS[first](rig, True)
            rig.app.request_stop()
            end()
        rig.end(*([5, 0] if mode == "lossless" else [0]))
    except AssertionError:
        rig.open_all()
        raise


def test_a_swap_of_one_leaves_the_other_untouched(tmp_path: Path) -> None:
    """The other has the same lanes and the same detector, loses no frame, and goes on while the new one is opened."""
    rig = Rig(tmp_path, workers=False, several=True, mode="lossless")
    rig.start()
    rig.wait_ready()
    rig.check_running()
    models = rig.app.parts.detecting.detections
    before, lanes = models["first"].lanes.info, models["first"].lanes.threads
    old = models["second"].lanes.threads
    rig.model.close()
    future = rig.swap("second-file", "second")
    rig.model.wait_for_one()
    rig.check_running()
    rig.model.open()
    assert future.result(60).summary == {"models": ["second"]}
    rig.check_running()
    assert models["first"].lanes.threads == lanes
    assert models["first"].lanes.info is before
    wait_until(lambda: not any(lane.is_alive() for lane in old), "the old lanes end")
    assert len(models["second"].lanes.threads) == 2
    assert [row.closed for row in rig.detectors] == [0, 1, 0]  # first, second, second again
    assert all(dropped(count) == 0 for count in rig.app.ledger.counts().values())
    rig.app.request_stop()
    rig.end(0, 5)


def test_a_swap_that_is_refused_changes_neither(tmp_path: Path) -> None:
    def open_detector(_: Backend, options: Options) -> FakeDetector:
        if options.path.name == "bad":
            raise DetectorError("it is not a model")
        return FakeDetector(options)

    model = ModelConfig(path=Path("good"), backend="fake")
    bad = msgspec.structs.replace(model, path=Path("bad"))
    both = msgspec.structs.replace(STREET, model=["a", "b"])
    with running(tmp_path, both, config={"models": {"a": model, "b": model}}, open_detector=open_detector) as app:
        wait_up(app, "street")
        models = app.parts.detecting.detections
        lanes = {name: row.lanes.threads for name, row in models.items()}
        for refused, message in (
            ({"a": model, "b": bad}, "not a model"),
            ({"a": model, "c": model}, "names of models"),
        ):
            change = app.changes.submit(lambda now, refused=refused: msgspec.structs.replace(now, models=refused))  # type: ignore[misc]
            with pytest.raises((LookoutError, DetectorError), match=message):
                change.result(60)
        assert {name: row.lanes.threads for name, row in models.items()} == lanes
        wait_up(app, "street")


def test_the_api_has_the_figures_of_each_model(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    token = "a-token-of-forty-characters-or-so-00001"  # noqa: S105 - of this test
    model = ModelConfig(path=Path("good"), backend="fake")
    sources = [
        msgspec.structs.replace(STREET, model=["a", "b"]),
        msgspec.structs.replace(STREET, id="yard", model="b"),
    ]
    config = {"models": {"a": model, "b": model}, "http": HttpConfig(enabled=True, port=0, token=Secret(token))}
    with running(tmp_path, *sources, config=config) as app:
        wait_up(app, "street", "yard")
        with httpx.Client(base_url=app.parts.http_url or "", headers={"Authorization": f"Bearer {token}"}) as client:
            facts, shown = client.get("/api/v1/daemon").json(), client.get("/api/v1/config").json()
            text = client.get("/metrics").text
    assert [*facts["models"]] == [*shown["models"]] == ["a", "b"]
    assert "model" not in shown
    sums: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("lookout_model_frames"):
                key = f"{sample.labels['source']}/{sample.labels['model']}", sample.name.split("_")[3]
                sums[key] = sums.get(key, 0) + sample.value
    for account in ("street/a", "street/b", "yard/b"):
        left = sums[account, "published"] + sums[account, "dropped"] + sums[account, "in"]
        assert sums[account, "captured"] == left > 0


class _OnGpu(FakeDetector):
    """It says that it has 100 bytes for each of its pictures in a batch."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.info = replace(self.info, memory=(("weights", 100 * options.max_batch),))


def test_the_plan_of_memory_is_the_sum(tmp_path: Path) -> None:
    """Each model is opened with the memory that the others leave, at the start and in a swap."""
    opened: list[tuple[str, int]] = []

    def open_detector(_: Backend, options: Options) -> FakeDetector:
        opened.append((options.path.name, options.reserved))
        return _OnGpu(options)

    models = {
        "a": ModelConfig(path=Path("first"), backend="fake", max_batch=1),
        "b": ModelConfig(path=Path("second"), backend="fake", max_batch=2),
    }
    both = msgspec.structs.replace(STREET, model=["a", "b"])
    with running(tmp_path, both, config={"models": models}, open_detector=open_detector) as app:
        wait_up(app, "street")
        assert opened == [("first", 0), ("second", 100)]
        assert app.parts.memory_plan[:2] == (("a: weights", 100), ("b: weights", 200))
        fresh = msgspec.structs.replace(models["a"], path=Path("third"), max_batch=4)
        app.changes.submit(lambda now: msgspec.structs.replace(now, models={**models, "a": fresh})).result(60)
        assert opened[2:] == [("third", 200)]
        assert app.parts.memory_plan[:2] == (("a: weights", 400), ("b: weights", 200))
