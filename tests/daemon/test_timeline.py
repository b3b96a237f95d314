"""Times of pictures: a recording's never go back."""

from __future__ import annotations

from fractions import Fraction

import pytest
from av.packet import Packet

from daemon.sources.pending import PendingPictures, TimeSlot
from daemon.sources.timeline import Timeline

_MS = Fraction(1, 1000)
_RATE = 10.0  # a picture each 100 ms


def times_of(*stamps: int | None, live: bool = False) -> list[int | None]:
    """Times of pictures with these timestamps, all in ms."""
    line = Timeline(live=live, rate=_RATE)
    found = [line.time_of(stamp, _MS) for stamp in stamps]
    return [time if time is None else time // 1_000_000 for time in found]


def test_a_wrong_timestamp_stands_still() -> None:
    assert times_of(0, 100, 200, 130, 400, 500) == [0, 100, 200, 200, 400, 500]


def test_another_recording_goes_on_at_the_end_of_the_last() -> None:
    assert times_of(7_000, 7_100, 7_200, 0, 100, 200) == [7_000, 7_100, 7_200, 7_300, 7_400, 7_500]


def test_a_short_recording_that_begins_again_is_another_one() -> None:
    """Less than a second: its first pictures might be wrong, and stand still."""
    assert times_of(*[100 * number for number in range(6)], *[100 * number for number in range(8)]) == [
        0, 100, 200, 300, 400, 500, 500, 500, 500, 500, 600, 700, 800, 900,
    ]  # fmt: skip


def test_a_short_recording_that_begins_in_another_stream_goes_on_at_the_end_of_the_last() -> None:
    line = Timeline(live=False, rate=_RATE)
    times = [line.time_of(stamp, _MS) for stamp in (0, 100)]
    line.begin_stream()
    times += [line.time_of(stamp, _MS) for stamp in (0, 100)]
    assert times == [0, 100_000_000, 200_000_000, 300_000_000]


def test_pictures_without_a_timestamp_are_counted_by_the_rate() -> None:
    assert times_of(None, None, 200, None, 400) == [0, 100, 200, 300, 400]
    assert times_of(None, 100, None, live=True) == [None, 100, None]


def test_gaps_equal_times_and_negative_ones_stay() -> None:
    assert times_of(-200, -100, 0, 0, 3_600_000) == [-200, -100, 0, 0, 3_600_000]


def test_the_times_of_a_camera_are_its_own() -> None:
    assert times_of(500, 100, 600, live=True) == [500, 100, 600]


def test_times_of_other_packets_are_put_in_order() -> None:
    """From the first picture that comes before its time."""
    line = Timeline(live=False, rate=_RATE)
    shown = [(0, 0), (300, 100), (200, 200), (100, 300), (400, 400)]  # its timestamp, and the smallest that was due
    assert [line.time_of(stamp, _MS, TimeSlot(due, 0)) for stamp, due in shown] == [
        time * 1_000_000 for time in (0, 300, 300, 300, 400)
    ]


def test_a_pass_begins_where_the_last_ended() -> None:
    line = Timeline(live=False, rate=_RATE)
    assert [line.time_of(stamp, _MS) for stamp in (1_400, 1_500)] == [1_400_000_000, 1_500_000_000]
    line.begin_pass()
    assert [line.time_of(stamp, _MS) for stamp in (1_400, 1_500)] == [1_600_000_000, 1_700_000_000]


def packet(pts: int | None, dts: int | None) -> Packet:  # type: ignore[type-arg]
    made: Packet = Packet(1)  # type: ignore[type-arg]
    made.pts, made.dts = pts, dts
    return made


@pytest.mark.parametrize("by_dts", [False, True])
def test_each_picture_gets_the_smallest_time_that_is_due(by_dts: bool) -> None:
    pending = PendingPictures(by_dts=by_dts)
    for pts, dts in ((0, 0), (3, 1), (1, 2), (2, 3)):
        pending.add(packet(pts, dts), 1)
    assert [pending.deliver(pts).time for pts in (0, 1, 2, 3)] == [0, 1, 2, 3]
    assert pending.count == 0


def test_pictures_of_one_packet_get_the_times_of_the_empty_packets_behind_it() -> None:
    pending = PendingPictures(by_dts=True)
    for dts, pictures in enumerate((1, 2, 0, 2, 0)):
        pending.add(packet(None, dts), pictures)
    assert [pending.deliver(None).time for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_lost_picture_takes_its_time_along() -> None:
    pending = PendingPictures(by_dts=False)
    lost = packet(1, 1)
    for one in (packet(0, 0), lost):
        pending.add(one, 1)
    pending.lose(lost)
    pending.add(packet(2, 2), 1)
    assert [pending.deliver(pts) for pts in (0, 2)] == [TimeSlot(0, 0), TimeSlot(2, 0)]


def test_another_timeline_begins_where_decoding_goes_back() -> None:
    pending = PendingPictures(by_dts=False)
    for time in (50, 60, 0, 10):
        pending.add(packet(time, time), 1)
    assert [pending.deliver(time).line for time in (50, 60, 0, 10)] == [0, 0, 1, 1]
