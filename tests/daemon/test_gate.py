"""Few at once, and nobody is forgotten."""

from __future__ import annotations

import threading

from daemon.sources.nvdec.gate import Gate, new_turn


def test_no_more_than_its_places_and_everybody_as_often() -> None:
    gate, lock, enough = Gate(3), threading.Lock(), threading.Event()
    inside, most, turns = 0, 0, [0] * 12

    def work(number: int) -> None:
        nonlocal inside, most
        turn = new_turn()
        while not enough.is_set():
            gate.enter(turn)
            with lock:
                inside += 1
                most = max(most, inside)
            enough.wait(0.0005)
            with lock:
                inside -= 1
                turns[number] += 1
                if sum(turns) >= 600:
                    enough.set()
            gate.leave()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(turns))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == 3
    # The first begins before the last is there; from then on it is in turns.
    assert min(turns) > 0.6 * max(turns)
