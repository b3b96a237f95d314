"""The lines of a result: what differs from run to run is not in them, and their order is that of the recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from daemon.batch.records import Header
from daemon.batch.sink import Ended, ResultSink
from daemon.batch.writer import IncompleteError, ResultWriter
from daemon.pipeline.ledger import Counts
from lookout.messages import (
    Detection,
    Detections,
    Dropped,
    Event,
    FrameClock,
    ImageSize,
    Latency,
    Metrics,
    Model,
    Status,
    VideoFormat,
    topic,
)

MODEL = Model("m", "d", "fp32", "cpu")
HEADER = Header(clip="1.mp4", size=7, sha256="0", model=MODEL, settings={}, release="1")
FORMAT = VideoFormat("h264", 8, 8, 15.0, "cpu", decoder_reason="no GPU is here")


def _frame(seq: int, run: str = "a", *, index: int | None = None, noise: int = 1) -> Detections:
    return Detections(
        instance=run,
        source=f"clip-{run}",
        session=f"s{run}",
        seq=seq,
        index=seq if index is None else index,
        pts=seq * 100,
        captured_at=10**18 + noise,
        clock=FrameClock("file", 0),
        image=ImageSize(8, 8),
        model=MODEL,
        detections=[Detection("person", 0, 0.5, (0.0, 0.0, 1.0, 1.0))],
        latency=Latency(noise, noise, noise, noise, noise, noise),
        dropped=Dropped(decode_error=noise),
    )


def _event(number: int, began: int, confirmed: int, run: str = "a", *, noise: int = 1) -> Event:
    return Event(
        id=f"{run}-{number}",
        number=number,
        instance=run,
        source=f"clip-{run}",
        session=f"s{run}",
        index=noise,
        kind="zone",
        phase="entered",
        seq=began,
        pts=began * 100,
        at=10**18 + noise,
        confirmed_seq=confirmed,
        confirmed_at=10**18 + noise,
        rule="door",
        label="person",
        snapshot=f"/{noise}",
    )


def _counts(captured: int, published: int, **dropped: int) -> Counts:
    return Counts(captured, published, Dropped(**dropped))


def _written(messages: list[Detections | Event], counts: Counts, reason: str | None = None) -> list[dict[str, Any]]:
    lines: list[bytes] = []
    writer = ResultWriter(HEADER, lines.append)
    for message in messages:
        writer.detections(message) if isinstance(message, Detections) else writer.event(message)
    writer.finish(reason, FORMAT, {"": counts})
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    return [msgspec.json.decode(line) for line in lines]


def test_two_runs_give_the_same_lines() -> None:
    """Events come at other places among frames: those of a whole batch before its frames."""
    one = _written([_event(7, 0, 1), _frame(0), _frame(1), _frame(2), _event(8, 1, 2)], _counts(3, 3))
    other = _written(
        [
            _frame(0, "b", noise=5),
            _event(70, 0, 1, "b", noise=6),
            _frame(1, "b", noise=7),
            _event(71, 1, 2, "b", noise=8),
            _frame(2, "b", noise=9),
        ],
        _counts(3, 3),
    )
    kinds = [line["schema"].partition("/")[0].removeprefix("lookout.") for line in one]
    assert kinds == ["batch-header", "detections", "event", "detections", "detections", "event", "batch-footer"]
    assert [line["seq"] for line in one if "seq" in line] == [0, 0, 1, 2, 1]
    assert one[:4] == other[:4]
    assert [line["number"] for line in other if "number" in line] == [1, 2]
    assert (one[2]["at"], one[2]["confirmed_at"], one[2]["id"]) == (0, 100, "batch-1")


def test_every_line_is_a_message_of_the_wire() -> None:
    lines = _written([_frame(0), _event(7, 0, 0)], _counts(1, 1))
    for line in lines[1:-1]:
        kinds: Any = Detections if "detections" in line else Event
        assert msgspec.convert(line, kinds).source == "1.mp4"


def test_the_last_line_sums_up() -> None:
    """A gap in `seq` is a picture that could not be decoded."""
    footer = _written([_frame(0), _frame(2, index=1), _event(7, 0, 2)], _counts(3, 2, decode_error=1))[-1]
    assert (footer["complete"], footer["ended"]) == (False, "played to its end")
    assert (footer["frames"], footer["analysed"], footer["boxes"], footer["events"]) == (3, 2, 2, 1)
    assert footer["dropped"]["decode_error"] == 1
    assert footer["totals"] == [
        {"rule": "door", "kind": "zone", "phase": "entered", "direction": None, "label": "person", "count": 1}
    ]
    assert footer["format"]["decoder_reason"] is None


def test_a_recording_that_is_cut_short_has_a_result() -> None:
    reason = "/archive/1.mp4 is cut short: it ends after 3.0 s of 6.0 s"
    footer = _written([_frame(0)], _counts(1, 1), reason)[-1]
    assert (footer["complete"], footer["ended"]) == (False, "cut short: it ends after 3.0 s of 6.0 s")


@pytest.mark.parametrize(
    ("counts", "reason", "words"),
    [
        (_counts(2, 1, detector_error=1), None, "1 of 2 frames were not analysed: detector_error"),
        (_counts(3, 1, late=1, shutdown=1), None, "2 of 3 frames were not analysed: late, shutdown"),
        (_counts(1, 1), "no picture of 9 could be decoded", "no picture of 9 could be decoded"),
        (_counts(1, 1), "cannot open 1.mp4: it is empty, cut short or not a video", "cannot open 1.mp4"),
        (_counts(2, 2), None, "2 frames were published and 1 were received"),
    ],
)
def test_a_result_that_the_next_run_would_not_have_is_none(counts: Counts, reason: str | None, words: str) -> None:
    with pytest.raises(IncompleteError, match=words):
        _written([_frame(0)], counts, reason)


def _of(name: str) -> Model:
    return msgspec.structs.replace(MODEL, id=name)


def _of_two(messages: Sequence[Detections | Event], **counts: Counts) -> list[dict[str, Any]]:
    """The lines of a clip at which two models look, with their accounts."""
    lines: list[bytes] = []
    header = msgspec.structs.replace(HEADER, model=_of("cars"), models={name: _of(name) for name in ("cars", "people")})
    writer = ResultWriter(header, lines.append)
    for message in messages:
        writer.detections(message) if isinstance(message, Detections) else writer.event(message)
    writer.finish(
        None, FORMAT, {"people": _counts(3, 2, decode_error=1), "cars": _counts(3, 2, decode_error=1), **counts}
    )
    return [msgspec.json.decode(line) for line in lines]


def _looks(name: str, *numbers: int) -> list[Detections]:
    return [msgspec.structs.replace(_frame(seq), model=_of(name)) for seq in numbers]


def test_lines_of_two_models_do_not_depend_on_which_is_ahead() -> None:
    """A frame has a line of each, by name, whatever came first; picture 1 could not be decoded."""
    event = _event(7, 0, 2)
    one = _of_two([*_looks("people", 0), event, *_looks("people", 2), *_looks("cars", 0, 2)])
    other = _of_two([*_looks("cars", 0, 2), *_looks("people", 0), event, *_looks("people", 2)])
    assert one == other
    assert [(line["seq"], line["model"]["id"]) for line in one if "detections" in line] == [
        (0, "cars"), (0, "people"), (2, "cars"), (2, "people"),
    ]  # fmt: skip
    assert [line["index"] for line in one if "detections" in line] == [0, 1, 2, 3]
    assert [place for place, line in enumerate(one) if "rule" in line] == [3]
    footer = one[-1]
    assert (footer["frames"], footer["analysed"], footer["boxes"], footer["dropped"]["decode_error"]) == (3, 2, 4, 1)
    assert footer["models"] == {name: {"analysed": 2, "boxes": 2, "bad_boxes": 0} for name in ("cars", "people")}


def test_what_one_of_two_models_lacks_is_named() -> None:
    looks = [*_looks("cars", 0, 2), *_looks("people", 0, 2)]
    with pytest.raises(IncompleteError, match=r"^model people: 1 of 3 frames were not analysed: detector_error"):
        _of_two(looks, people=_counts(3, 1, decode_error=1, detector_error=1))
    with pytest.raises(IncompleteError, match=r"^model cars: 2 frames were published and 1 were received"):
        _of_two(looks[1:])
    with pytest.raises(IncompleteError, match=r"^model people: all 6 boxes are impossible"):
        _of_two(looks, people=Counts(3, 2, Dropped(decode_error=1), bad_boxes=6))


def _status(state: str, reason: str | None = None, format: VideoFormat | None = None) -> Status:
    return msgspec.convert(
        {"instance": "a", "source": "clip-a", "session": "s", "index": 0, "at": 0, "state": state, "reason": reason}
        | ({"format": msgspec.to_builtins(format)} if format else {}),
        Status,
    )


def _sink(*messages: Detections | Event | Status | Metrics) -> tuple[list[Ended], list[bytes]]:
    rung: list[None] = []
    lines: list[bytes] = []
    sink = ResultSink(lambda: rung.append(None), lambda _: {"": _counts(1, 1)})
    sink.expect("clip-a", ResultWriter(HEADER, lines.append))
    for message in messages:
        sink.send(topic("any", "any"), message)
    sink.flush()
    sink.close()
    ended = sink.take_ended()
    assert (len(rung), sink.take_ended(), [*sink.newcomers()], sink.subscriptions) == (len(ended), [], [], 0)
    return ended, lines


def test_the_sink_writes_until_a_clip_has_ended() -> None:
    ended, lines = _sink(_status("up", format=FORMAT), _frame(0), _frame(0, "other"), _status("ended"), _frame(1))
    assert ended == [Ended("clip-a")]
    assert len(lines) == 3


def test_the_sink_gives_up_a_clip_that_cannot_be_played() -> None:
    assert _sink(_status("down", "cannot open it"), _status("ended"))[0] == [Ended("clip-a", "cannot open it")]
    assert _sink(_status("up", format=FORMAT), _status("ended", "stopped"))[0] == [Ended("clip-a", "stopped")]


def test_the_sink_writes_nothing_of_a_clip_that_is_forgotten() -> None:
    lines: list[bytes] = []
    sink = ResultSink(lambda: None, lambda _: {"": _counts(1, 1)})
    sink.expect("clip-a", ResultWriter(HEADER, lines.append))
    sink.forget("clip-a")
    sink.send(b"", _frame(0))
    assert len(lines) == 1
