"""Threads are kept off a core that is busy with the GPU's interrupts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.system.affinity import Affinity, interrupts

pytestmark = pytest.mark.needs("cores")
_S = 1_000_000_000
_THREADS = "import threading\nfor _ in range(3): threading.Thread(target=input).start()\nprint(flush=True)"


@pytest.fixture
def process() -> Iterator[int]:
    """Of four threads."""
    with subprocess.Popen([sys.executable, "-c", _THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout
        started.stdout.readline()
        yield started.pid
        started.kill()


@pytest.fixture
def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


class Irqs:
    """The kernel's folder: two of a GPU, and one of a network card."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts = {name: [0] * (max(os.sched_getaffinity(0)) + 1) for name in ("nvidia", "nvidia\n", "eth0\n")}
        self._write()

    def add(self, name: str, core: int, count: int) -> None:
        self.counts[name][core] += count
        self._write()

    def _write(self) -> None:
        for number, (name, counts) in enumerate(self.counts.items()):
            irq = self.folder / str(40 + number)
            irq.mkdir(exist_ok=True)
            (irq / "actions").write_text(name)
            (irq / "per_cpu_count").write_text(",".join(map(str, counts)) + "\n")


@pytest.fixture
def irqs(tmp_path: Path) -> Irqs:
    return Irqs(tmp_path)


def _of_threads(pid: int) -> list[set[int]]:
    return [os.sched_getaffinity(int(thread)) for thread in os.listdir(f"/proc/{pid}/task")]


def test_every_thread_leaves_a_busy_core_and_comes_back_when_it_is_quiet(
    process: int, cores: list[int], irqs: Irqs
) -> None:
    affinity = Affinity(lambda: [process], share=2, irqs=irqs.folder)
    affinity.check(0)
    irqs.add("nvidia", cores[1], 30_000)
    irqs.add("nvidia\n", cores[1], 26_500)
    affinity.check(1 * _S)  # too early to tell
    assert affinity.avoided == set()
    affinity.check(5 * _S)
    assert _of_threads(process) == [set(cores) - {cores[1]}] * 4
    irqs.add("nvidia", cores[1], 6_000)  # 1,200/s: below what made it busy, but not quiet
    affinity.check(10 * _S)
    assert affinity.avoided == {cores[1]}
    irqs.add("nvidia", cores[1], 100)
    affinity.check(15 * _S)
    assert _of_threads(process) == [set(cores)] * 4


def test_what_moves_is_followed_and_of_many_busy_cores_only_the_busiest_are_avoided(
    process: int, cores: list[int], irqs: Irqs
) -> None:
    affinity = Affinity(lambda: [process], share=len(cores), irqs=irqs.folder)
    for turn, (most, less) in enumerate([cores[:2], cores[1::-1]], 1):
        affinity.check((turn - 1) * 5 * _S)
        irqs.add("nvidia", most, 50_000)
        irqs.add("nvidia", less, 20_000)
        affinity.check(turn * 5 * _S)
        assert _of_threads(process) == [set(cores) - {most}] * 4


def test_a_thread_that_somebody_else_keeps_to_a_core_stays_there(process: int, cores: list[int], irqs: Irqs) -> None:
    os.sched_setaffinity(process, cores[:1])
    affinity = Affinity(lambda: [process, 1 << 30], share=2, irqs=irqs.folder)  # and one that has ended
    affinity.check(0)
    irqs.add("nvidia", cores[0], 50_000)
    affinity.check(5 * _S)
    moved = set(cores) - {cores[0]}
    assert sorted(map(sorted, _of_threads(process))) == sorted(map(sorted, [set(cores[:1]), moved, moved, moved]))


def test_other_devices_few_cores_and_a_kernel_that_does_not_tell_change_nothing(
    process: int, cores: list[int], irqs: Irqs, tmp_path: Path
) -> None:
    asked = [
        Affinity(lambda: [process], share=2, irqs=irqs.folder),
        Affinity(lambda: [process], share=len(cores) + 1, irqs=irqs.folder),
        Affinity(lambda: [process], irqs=tmp_path / "none"),
    ]
    for affinity in asked:
        affinity.check(0)
    irqs.add("eth0\n", cores[0], 1_000_000)
    asked[0].check(5 * _S)
    irqs.add("nvidia", cores[0], 1_000_000)
    for affinity in asked[1:]:
        affinity.check(5 * _S)
    assert _of_threads(process) == [set(cores)] * 4
    assert interrupts(tmp_path / "none") == {}
