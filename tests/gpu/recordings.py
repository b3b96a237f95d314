"""Odd recordings through the GPU's decoder and through FFmpeg's: the same pictures, sizes, times, causes and reasons.

    python -m tests.gpu.recordings FOLDER

FOLDER is the `made` of `python -m tests.scan FOLDER`, which needs ffmpeg and no GPU. A recording that the GPU does not
decode says why. Two decoders do not always find the same pictures damaged: of those, the sum is compared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from daemon.sources.decode import NVDEC
from daemon.sources.nvdec.backend import NvdecBackend
from daemon.sources.nvdec.trial import probe
from tests.support.playing import Played, play

_SURFACES = 3


def main() -> int:
    recordings = sorted(path for path in Path(sys.argv[1]).iterdir() if path.suffix != ".lock" and path.is_file())
    unlike = by_gpu = 0
    with closing(NvdecBackend(0, probe(0), _SURFACES, None).open()) as pool:
        for path in recordings:
            here, there = play(path, decode="cpu"), play(path, pool, decode="auto")
            found = [*_differences(here, there)]
            unlike += bool(found)
            decoders = {format.decoder for format in there.formats}
            by_gpu += decoders == {NVDEC}
            why = {format.decoder_reason for format in there.formats} - {None}
            words = "; ".join(found) or "the same"
            print(f"{path.name:50} {here.pictures:5} by {'/'.join(sorted(decoders))} {why or ''}: {words}")  # noqa: T201
    print(f"{len(recordings)} recordings, {by_gpu} by the GPU alone; {unlike} differ")  # noqa: T201
    return 1 if unlike else 0


def _differences(here: Played, there: Played) -> Iterator[str]:
    for name, one, other in (
        ("pictures and damaged ones", _shown(here), _shown(there)),
        ("passed over", dict(here.passed_over), dict(there.passed_over)),
        ("codecs", here.codecs, there.codecs),
        ("reason", here.reason, there.reason),
    ):
        if one != other:
            yield f"{name}: {one} by FFmpeg, {other} by the GPU"
    if not here.dropped and not there.dropped:
        if here.sizes != there.sizes:
            yield f"sizes: {dict(here.sizes)} by FFmpeg, {dict(there.sizes)} by the GPU"
        if here.times != there.times:
            first = next((n for n, pair in enumerate(zip(here.times, there.times)) if pair[0] != pair[1]), None)
            yield f"times differ from picture {first} on"
    elif here.dropped != there.dropped:
        yield f"dropped: {dict(here.dropped)} by FFmpeg, {dict(there.dropped)} by the GPU"


def _shown(played: Played) -> int:
    return played.pictures + played.dropped["corrupt"]


if __name__ == "__main__":
    sys.exit(main())
