"""Times of packets, in the order of decoding, given to pictures in the order of showing."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from daemon.sources.nvdec.times import ShowTimes

SECOND = Fraction(30)
# B-frames in a pyramid, as x264 makes them: decoded in this order.
GROUP = (4, 2, 1, 3)
DECODED = [0, *(start + number for start in range(0, 800, 4) for number in GROUP)]
HELD_BACK = 3


def _shown(*timelines: Sequence[int], lost: int | None = None) -> list[tuple[int | None, int]]:
    """Each picture's time as it is told, and its true one, of a decoder that always holds some pictures back."""
    times, inside, found = ShowTimes(SECOND), list[tuple[int, int]](), list[tuple[int | None, int]]()
    for number, packets in enumerate(timelines):
        for packet in packets:
            times.push(packet)
            if packet != lost:
                inside.append((number, packet))
            if len(inside) > HELD_BACK:
                inside.remove(first := min(inside))
                found.append((times.pop(), first[1]))
    return found


def test_times_are_those_of_the_pictures() -> None:
    found = _shown(DECODED)
    assert len(found) > 700
    assert all(told == true for told, true in found)


def test_a_first_packet_without_a_time_keeps_its_picture_to_itself() -> None:
    """RTSP's has none; the pictures after it have their own."""
    times, inside, found = ShowTimes(SECOND), list[int](), list[tuple[int | None, int]]()
    for packet in DECODED:
        times.push(packet or None)
        inside.append(packet)
        if len(inside) > HELD_BACK:
            inside.remove(first := min(inside))
            found.append((times.pop(), first))
    assert found[0] == (None, 0)
    assert all(told == true for told, true in found[1:])


def test_a_picture_that_never_came_does_not_shift_those_after_it_for_good() -> None:
    found = _shown(DECODED, lost=301)
    wrong = [true for told, true in found if told != true]
    assert wrong, "the picture after the lost one cannot know"
    assert min(wrong) > 298
    assert max(wrong) < 301 + 3 * 64
    assert all(told == true for told, true in found[-200:])


@pytest.mark.parametrize("lost", [None, 301])
def test_a_decoder_that_begins_anew_gives_what_it_held_back(lost: int | None) -> None:
    """The fewer that wait then are no sign that later ones are left behind; those that are, are found all the same."""
    times, inside, found = ShowTimes(SECOND), list[int](), list[tuple[int | None, int]]()

    def show() -> None:
        inside.remove(first := min(inside))
        found.append((times.pop(), first))

    for begin in range(0, 2400, 200):
        for packet in (begin, *(begin + number for number in DECODED[1:198])):
            times.push(packet, anew=packet == begin)
            while packet == begin and inside:
                show()
            if packet != lost:
                inside.append(packet)
            if len(inside) > HELD_BACK:
                show()
    right = [true for told, true in found if told == true]
    assert len(right) > (2300 if lost is None else 1900)
    assert right[-1500:] == [true for _, true in found[-1500:]]
    assert lost is not None or right == [true for _, true in found]


def test_a_timeline_that_begins_again_is_another() -> None:
    later = [time + 10_000 for time in DECODED[:101]]
    found = _shown(later, DECODED)
    assert len(found) > 800
    assert all(told == true for told, true in found)


def test_packets_without_times_have_pictures_without() -> None:
    times = ShowTimes(SECOND)
    times.push(None)
    assert times.pop() is None
