"""Two GPUs of one host as two members of a fleet: sources placed by capacity, and one member killed.

    python -m tests.gpu.pair MODEL.onnx CLIP --labels coco --cache DIR --out DIR [--sources 480 --seconds 60]

Needs etcd in PATH. The clip is played in a loop at its own pace by each source. Rows: sources of each member, frames a
second published, frames dropped by cause; the same after one member was killed, with the sources that do not fit and
why. Build the engine before, because two processes would build it one after the other.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from time import monotonic, sleep

import av

from daemon.fleet.etcd_coordinator import EtcdCoordinator
from daemon.fleet.records import FleetView, SourceRecord, StreamFormat
from lookout.client import Subscriber
from lookout.messages import Metrics
from tests.fleet.etcd_server import EtcdServer
from tests.support.daemon import Lookout

_FLEET = "pair"
_PATIENCE_S = 240.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--labels", default="coco")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sources", type=int, default=480)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--builder-level", type=int, default=3)
    parser.add_argument("--backend", default="trt")
    args = parser.parse_args()
    with ExitStack() as stack:
        etcd = EtcdServer(args.out / "etcd")
        stack.callback(etcd.kill)
        etcd.start()
        coordinator = stack.enter_context(closing(EtcdCoordinator(etcd.settings(), _FLEET)))
        coordinator.put_sources(dict(_sources(args)), replace=True)
        daemons = [_member(stack, args, etcd, gpu) for gpu in range(2)]
        _wait(lambda: len(coordinator.view().members) == len(daemons), "both are members")
        readers = [
            stack.enter_context(Subscriber(daemon.endpoint, kinds=("metrics",), high_water_mark=100_000))
            for daemon in daemons
        ]
        _wait(lambda: _is_steady(coordinator.view()), "sources are owned, or wait with a reason")
        _wait_for_pictures(readers)
        _show("two members", coordinator.view(), _figures(readers, args.seconds))
        before = coordinator.view()
        daemons[1].process.kill()
        begun = monotonic()
        _wait(lambda: len(coordinator.view().members) == 1, "one member is gone")
        gone_s = monotonic() - begun
        _wait(lambda: _is_steady(coordinator.view()), "sources are owned, or wait with a reason")
        after = coordinator.view()
        moved = sum(before.owned[id].member != row.member for id, row in after.owned.items() if id in before.owned)
        stayed = sum(before.owned[id] == row for id, row in after.owned.items() if id in before.owned)
        _say(f"killed: its lease ended after {gone_s:.2f} s, {moved} taken over after {monotonic() - begun:.2f} s, ")
        _say(f"{stayed} stayed, {len(after.sources) - len(after.owned)} wait")
        _wait_for_pictures(readers[:1])
        _show("one member", coordinator.view(), _figures(readers[:1], args.seconds / 2))
    return 0


def _sources(args: argparse.Namespace) -> Iterator[tuple[str, SourceRecord]]:
    with av.open(str(args.clip)) as clip:
        video = clip.streams.video[0]
        size, fps = (video.width, video.height), float(video.average_rate or 30)
        codec = {"h265": "hevc"}.get(video.codec_context.name, video.codec_context.name)
    picture = StreamFormat(codec=codec, width=size[0], height=size[1], fps=fps)
    row = {"type": "av", "url": str(args.clip.resolve()), "loop": True}
    for number in range(args.sources):
        name = f"cam-{number:03}"
        yield name, SourceRecord(config={"id": name, **row}, expected=picture)


def _member(stack: ExitStack, args: argparse.Namespace, etcd: EtcdServer, gpu: int) -> Lookout:
    folder = args.out / f"gpu{gpu}"
    folder.mkdir(parents=True)
    model = {
        "path": str(args.model.resolve()),
        "labels": args.labels or None,
        "backend": args.backend,
        "max_batch": args.max_batch,
        "cache": str(args.cache.resolve()),
        "builder_level": args.builder_level,
    }
    config: dict[str, object] = {
        "sources": [],
        "model": model,
        "lanes": args.lanes,
        "monitor": {"interval_s": 2.0},
        "board": {"max_batch": args.max_batch},
        "fleet": {"coordinator": f"etcd://127.0.0.1:{etcd.port}", "name": _FLEET, "member": f"host/gpu{gpu}"},
    }
    daemon = Lookout(folder, config, {"CUDA_VISIBLE_DEVICES": str(gpu), "PYTHONPATH": os.getcwd()})
    stack.callback(daemon.close)
    return daemon


def _is_steady(view: FleetView) -> bool:
    waiting = {id for id, want in view.wants.items() if want.member is None}
    return len(view.wants) == len(view.sources) and {*view.owned} | waiting == {*view.sources}


def _wait_for_pictures(readers: list[Subscriber]) -> None:
    """Until all sources are up for some seconds: on a GPU, 240 decoders take half a minute."""

    def are_up() -> bool:
        rows = [row for reader in readers for row in _last(reader).sources.values()]
        return all(row.published > 100 for row in rows)

    _wait(are_up, "each source has pictures")


def _figures(readers: list[Subscriber], seconds: float) -> list[str]:
    """Frames of each member in an interval."""
    firsts = [_last(reader) for reader in readers]
    sleep(seconds)
    lasts = [_last(reader) for reader in readers]
    rows = []
    for first, last in zip(firsts, lasts):
        dropped: Counter[str] = Counter()
        published = captured = 0
        for id, row in last.sources.items():
            earlier = first.sources.get(id)
            if earlier is None:
                continue
            published += row.published - earlier.published
            captured += row.captured - earlier.captured
            for cause in row.dropped.__struct_fields__:
                dropped[cause] += getattr(row.dropped, cause) - getattr(earlier.dropped, cause)
        span = last.uptime_s - first.uptime_s
        causes = {cause: count for cause, count in dropped.items() if count}
        rows.append(f"{published / span:8.0f} of {captured / span:8.0f} frames/s published, dropped {causes}")
    return rows


def _last(reader: Subscriber) -> Metrics:
    found: Metrics | None = None
    until = monotonic() + 30
    while monotonic() < until:
        message = reader.receive(0.5 if found is None else 0.0)
        if message is None and found is not None:
            return found
        found = message if isinstance(message, Metrics) else found
    raise AssertionError("no metrics")


def _show(name: str, view: FleetView, figures: list[str]) -> None:
    owners = Counter(row.member for row in view.owned.values())
    _say(f"--- {name}: owned {dict(sorted(owners.items()))} of {len(view.sources)}")
    for member, record in sorted(view.members.items()):
        _say(f"{member}: {record.capacity}, overloaded {record.overloaded}")
    for row in figures:
        _say(row)
    for reason, count in Counter(want.reason for want in view.wants.values() if want.member is None).most_common(5):
        _say(f"{count} wait: {reason}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _wait(condition: Callable[[], bool], what: str) -> None:
    until = monotonic() + _PATIENCE_S
    while not condition():
        if monotonic() > until:
            raise AssertionError(f"{what}: not within {_PATIENCE_S:g} s")
        sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
