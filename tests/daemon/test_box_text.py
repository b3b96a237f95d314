"""The bytes of messages, by each of the ways that make them, against a plain reference."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import msgspec
import numpy as np
import pytest

from daemon.clock import SystemClock
from daemon.pipeline.frames import FrameInfo
from daemon.pipeline.ledger import Ledger
from daemon.pipeline.outbox import Result, Served
from daemon.publish.box_text import BoxText, fastest_box_text
from daemon.publish.build import MessageBuilder, boxes_of
from daemon.publish.compiled_text import write
from daemon.publish.masks import MaskEncoder
from detectors.detections import Detections, Masks, Tracks, nothing
from detectors.port import StageTimes
from lookout.messages import Attribute, FrameClock, Model, Owner

LABELS = ("person", 'say "Ümlaut"\n', "traffic light", "狗")
SERVED = Served(Model("m", "0" * 12, "fp32", "fake"), LABELS)
OTHER = Served(Model("n", "1" * 12, "fp16", "fake"), LABELS[::-1])
OWNER = Owner("node-1", 7, "fleet")


@pytest.fixture(scope="module")
def compiled() -> BoxText:
    text = fastest_box_text(None)
    assert text is not None
    return text


class Random:
    """Makes results."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def result(self, seq: int, *, rich: bool) -> Result:
        info = FrameInfo(f"cam{seq % 3}", "s", seq, None, seq, 1, FrameClock("arrival"), 5, 640, 480)
        served = SERVED if seq % 7 else OTHER
        return Result(info, self._found(rich=rich), seq + 10, StageTimes(1, 2, 3), served)

    def _found(self, *, rich: bool) -> Detections:
        random, count = self._random, int(self._random.choice([0, 1, 3, 12]))
        if not count:
            return nothing()
        found = Detections(
            self._floats((count, 4), 4000),
            random.random(count, np.float32),
            random.integers(0, len(LABELS), count, np.int32),
        )
        if random.random() < 0.7:
            found = found.with_tracks(self._tracks(count))
        return self._enriched(found) if rich and random.random() < 0.7 else found

    def _floats(self, shape: tuple[int, ...], limit: float) -> Any:
        """Of all sizes; some are zero, and some are rounded to -0.0."""
        numbers = self._random.uniform(-limit, limit, shape) * 10.0 ** self._random.integers(-6, 1, shape)
        return (numbers * (self._random.random(shape) < 0.9)).astype(np.float32)

    def _tracks(self, count: int) -> Tracks:
        random = self._random
        ids, classes = random.integers(0, 9, count), random.integers(0, len(LABELS), count, np.int32)
        velocity, age = self._floats((count, 2), 500), random.integers(0, 1 << 62, count)
        return Tracks(ids, classes, np.zeros((count, 4), np.float32), velocity, age)

    def _enriched(self, found: Detections) -> Detections:
        """With some of the other columns."""
        random, count = self._random, len(found)
        attributes = np.full(count, None, object)
        attributes[0] = {"colour": Attribute("red", 0.5, 3, settled=True, at_seq=4)}
        columns = {
            "keypoints": self._floats((count, 2, 3), 100),
            "obb": self._floats((count, 5), 100),
            "masks": Masks(random.integers(0, 256, (count, 5, 2), np.uint8), 13, (3.0, 4.5), (2.0, 2.5)),
            "attributes": attributes,
        }
        return msgspec.structs.replace(found, **{key: columns[key] for key in columns if random.random() < 0.5})


def _rounded(numbers: Any, *digits: int) -> list[float]:
    return [float(np.round(np.float64(number), places)) for number, places in zip(numbers, digits, strict=True)]


def _runs(bitmap: Any) -> list[int]:
    bits = [0, *bitmap.ravel(order="F").tolist()]  # zeros come first
    counts = [len(list(run)) for _, run in groupby(bits)]
    return [counts[0] - 1, *counts[1:]]


def _box(found: Detections, labels: tuple[str, ...], row: int) -> dict[str, Any]:
    """One box as docs/wire.md has it."""
    class_id = int(found.class_id[row])
    box: dict[str, Any] = {"label": labels[class_id], "class_id": class_id}
    box["confidence"], box["box"] = _rounded(found.confidence[[row]], 4)[0], _rounded(found.xyxy[row], 2, 2, 2, 2)
    box["track_id"] = None
    if found.tracks is not None and found.tracks.id[row]:
        box["track_id"] = int(found.tracks.id[row])
        box["velocity"], box["age"] = _rounded(found.tracks.velocity[row], 2, 2), int(found.tracks.age[row])
        box["track_label"] = labels[found.tracks.class_id[row]]
    if found.keypoints is not None:
        box["keypoints"] = [_rounded(point, 2, 2, 4) for point in found.keypoints[row]]
    if found.obb is not None:
        box["obb"] = _rounded(found.obb[row], 2, 2, 2, 2, 4)
    if found.masks is not None:
        counts = _runs(found.masks.unpacked()[row])
        box["mask"] = {"size": [5, 13], "counts": counts, "origin": [3.0, 4.5], "scale": [2.0, 2.5]}
    if found.attributes is not None and found.attributes[row] is not None:
        box["attributes"] = found.attributes[row]
    return box


def _reference(result: Result, index: int, owner: Owner | None, total: int) -> dict[str, Any]:
    """A message, field by field."""
    frame, boxes = result.frame, range(len(result.detections))
    latency = {"decode": 5, "wait": 10, "preprocess": 1, "infer": 2, "postprocess": 3, "total": total}
    return {
        "schema": "lookout.detections/1", "instance": "run-1", "source": frame.source, "session": "s",
        "seq": frame.seq, "index": index, "pts": None, "captured_at": 1, "clock": {"kind": "arrival", "error": None},
        "image": {"width": 640, "height": 480, "pixel_aspect": 1.0}, "model": result.served.model,
        "detections": [_box(result.detections, result.served.labels, row) for row in boxes],
        "latency": latency, "dropped": Ledger(["cam"]).totals("cam"), "owner": owner,
    }  # fmt: skip


def _assert_equal(results: list[Result], text: BoxText | None, encode: Any) -> None:
    ledger = Ledger(["cam0", "cam1", "cam2"])
    builder = MessageBuilder("run-1", ledger, SystemClock())
    boxes = boxes_of(results, MaskEncoder("rle", 100, ledger), text)
    counts = dict.fromkeys(ledger.accounts, 0)
    for result, made in zip(results, boxes, strict=True):
        source, owner = result.frame.source, OWNER if result.frame.seq % 2 else None
        topic, message = builder.detections(result, made, owner)
        reference = _reference(result, counts[source], owner, message.latency.total)
        made_of, wanted = encode(message), encode(reference)
        if encode is msgspec.msgpack.encode:  # msgspec 0.19 writes a longer head where a field is left out
            made_of, wanted = repr(msgspec.msgpack.decode(made_of)), repr(msgspec.msgpack.decode(wanted))
        assert (topic, made_of) == (f"detections/{source}/".encode(), wanted)
        counts[source] += 1


@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode], ids=["json", "msgpack"])
@pytest.mark.parametrize("rich", [False, True], ids=["boxes", "all columns"])
def test_messages_have_the_bytes_of_the_reference(encode: Any, rich: bool) -> None:
    random = Random(1)
    _assert_equal([random.result(seq, rich=rich) for seq in range(100)], None, encode)


@pytest.mark.parametrize("rich", [False, True], ids=["boxes", "some other columns"])
def test_compiled_text_has_the_bytes_of_the_reference(compiled: BoxText, rich: bool) -> None:
    random = Random(2)
    for count in (1, 5, 100):
        _assert_equal([random.result(seq, rich=rich) for seq in range(count)], compiled, msgspec.json.encode)


def _same_text(compiled: BoxText, found: Detections) -> bool:
    """Whether it is written at all, and then that of msgspec."""
    info = FrameInfo("cam", "s", 0, None, 0, 1, FrameClock("arrival"), 5, 640, 480)
    texts = compiled.of([found], LABELS)
    (boxes,) = boxes_of([Result(info, found, 1, StageTimes(1, 2, 3), SERVED)], MaskEncoder("off", 0, Ledger()))
    assert texts is None or bytes(texts[0]) == msgspec.json.encode(boxes)
    return texts is not None


def test_compiled_text_of_every_size_of_number(compiled: BoxText) -> None:
    """All confidences, halves between two of them, and float32 of random bits."""
    confidence = (np.arange(20_001) / 20_000).astype(np.float32)
    xyxy = np.random.default_rng(3).integers(0, 1 << 32, (len(confidence), 4), np.uint32).view(np.float32)
    xyxy[~(np.abs(xyxy) < 1e10)] = 0.005
    assert _same_text(compiled, Detections(xyxy, confidence, np.zeros(len(confidence), np.int32)))


@pytest.mark.parametrize("number", [1e10, -3e38])
def test_larger_numbers_are_left_to_python(compiled: BoxText, number: float) -> None:
    found = Detections(np.full((1, 4), number, np.float32), np.ones(1, np.float32), np.zeros(1, np.int32))
    assert not _same_text(compiled, found)


def test_the_order_of_columns_in_memory_does_not_matter(compiled: BoxText) -> None:
    """One signature serves all, so the publisher does not wait for a compiler."""
    xyxy = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4))
    assert _same_text(compiled, Detections(xyxy, np.ones(3, np.float32), np.arange(3, dtype=np.int32)))
    assert len(write.signatures) == 1


@pytest.mark.parametrize("class_id", [-1, len(LABELS), 1 << 30])
def test_a_class_without_a_label_is_not_written(compiled: BoxText, class_id: int) -> None:
    found = Detections(np.zeros((1, 4), np.float32), np.ones(1, np.float32), np.array([class_id], np.int32))
    assert compiled.of([found], LABELS) is None
