"""The examples that receive webhooks, in Python and for Node.js: each takes what Lookout signs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import pytest

from daemon.bridge.port import AwayError, Connection
from daemon.bridge.records import Delivery, Picture
from daemon.bridge.targets.opening import open_target
from daemon.config.targets import WebhookTarget
from daemon.redact import Secret
from tests.support.clock import ManualClock
from tests.support.daemon import ROOT, wait_until
from tests.support.needs import node
from tests.support.ports import free_port
from tests.support.pushes import HERE, JPEG, context, event_record

_EXAMPLES = ROOT / "docs" / "examples"
OLD, NEW = ("whsec_" + letter * 10 for letter in ("b2xk", "bmV3"))


def opened(port: int, *secrets: str, clock: ManualClock | None = None) -> Connection:
    """A connection to a program that may not listen yet."""
    target = WebhookTarget(name="hook", url=Secret(f"http://127.0.0.1:{port}/x"), allow=HERE,
                           secrets=[Secret(text) for text in secrets])  # fmt: skip
    found: list[Connection] = []

    def is_open() -> bool:
        with suppress(AwayError):
            found.append(open_target(target, context(clock)))
        return bool(found)

    wait_until(is_open, "the example listens")
    return found[0]


@contextmanager
def receiver(*command: str) -> Iterator[tuple[int, IO[str]]]:
    """Its port, and what it prints."""
    port = free_port()
    with subprocess.Popen(
        [*command, str(port)], env={"LOOKOUT_SECRET": NEW, "PATH": ""}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield port, process.stdout
        finally:
            process.kill()


def sent(connection: Connection, *numbers: int) -> list[str | None]:
    """The results of events with these numbers, the last with a picture."""
    deliveries = [Delivery(event_record(number)) for number in numbers]
    deliveries[-1] = Delivery(deliveries[-1].record, Picture(JPEG))
    results: list[str | None] = []
    try:
        while len(results) < len(deliveries):
            results += connection.deliver(deliveries[len(results) :])
        return results
    finally:
        connection.close()


def check(*command: str) -> None:
    with receiver(*command) as (port, printed):
        assert sent(opened(port, NEW, OLD), 1, 2) == [None, None]
        assert sent(opened(port, OLD, NEW), 2, 3) == [None, None]  # the second comes again
        assert sent(opened(port, OLD), 4) == ["127.0.0.1 refuses it: 400"]
        assert sent(opened(port), 5) == ["127.0.0.1 refuses it: 400"]
        assert sent(opened(port, NEW, clock=ManualClock()), 6) == ["127.0.0.1 refuses it: 400"]  # of another year
        assert sent(opened(port, NEW), 7) == [None]
        assert [printed.readline() for _ in range(4)] == ["lookout.event/1 door person\n"] * 4


def test_the_example_in_python() -> None:
    check(sys.executable, str(_EXAMPLES / "webhook.py"))


@pytest.mark.needs("node")
def test_the_example_for_node() -> None:
    check(str(node()), str(_EXAMPLES / "webhook.mjs"))
