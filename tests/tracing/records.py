"""Random records of frames, for tests."""

from __future__ import annotations

import random

from daemon.pipeline.drop_causes import CAUSES
from daemon.pipeline.outbox import Served, Work
from daemon.tracing.record import IdMaker, LostFrame, Record, SentFrame
from detectors.port import StageTimes
from lookout.messages import Latency, Model

RESOURCE = {"service.name": "lookout", "service.version": "1", "service.instance.id": "run"}
_NAMES = ("door", "yard.2", "Straße", "日本", "a" * 64)


def records(count: int, seed: int) -> list[Record]:
    """So many frames, sent and dropped, whose `seq` is their place."""
    chance, ids = random.Random(seed), IdMaker()
    return [sent(chance, ids, seq) if chance.random() < 0.7 else lost(chance, ids, seq) for seq in range(count)]


def sent(chance: random.Random, ids: IdMaker, seq: int) -> SentFrame:
    source, captured, taken = chance.choice(_NAMES), chance.randrange(1 << 55), chance.randrange(1 << 30)
    decode, preprocess, infer, postprocess = (chance.choice((0, chance.randrange(1 << 32))) for _ in range(4))
    spent = taken + preprocess + infer + postprocess
    detected = captured + spent + chance.randrange(1 << 20)
    handed_over = detected + chance.randrange(1 << 20)
    work = Work("lane-0", chance.randrange(1, 65), detected, handed_over) if chance.random() < 0.9 else None
    total = handed_over - captured + chance.randrange(1 << 20)
    named = chance.random() < 0.5
    model = Model('yolo "x"\n', "0" * 12, "fp16", "cuda", "people" if named else "")
    return SentFrame(
        ids.ids(source, seq, captured, is_sent=True), chance.choice(("sampled", "slow")), chance.randrange(1 << 60),
        source, "session", seq, captured, captured + taken, StageTimes(preprocess, infer, postprocess),
        Latency(decode, taken, preprocess, infer, postprocess, total), Served(model, (), "gpu0"), work,
    )  # fmt: skip


def lost(chance: random.Random, ids: IdMaker, seq: int) -> LostFrame:
    source, captured = chance.choice(_NAMES), chance.randrange(1 << 55)
    model, decode = chance.choice(("", "plates")), chance.choice((0, chance.randrange(1 << 32)))
    made = ids.ids(source, seq, captured, is_sent=False)
    return LostFrame(made, chance.randrange(1 << 60), source, model, seq, captured, decode, chance.choice(CAUSES))
