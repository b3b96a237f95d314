"""Random histories of a daemon: thirty steps of verbs, some of them held while others happen, and then its end.

A history is a hypothesis state machine: what fails is tried again with fewer steps, and printed as a program.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from daemon.config.sources import AvConfig, SyntheticConfig
from daemon.daemon import CUT_SHORT
from daemon.errors import ConfigError
from daemon.monitoring.health import PART_FAILED
from daemon.redact import Url
from tests.lifetimes.analysis_verbs import End
from tests.lifetimes.rig import Analysis, Rig, settle, wait_until
from tests.lifetimes.verbs import ENDING, VERBS

STEPS = 30
_TOLD = 100
_CHANGES = ("SIGHUP", "rules change", "add", "change", "disable", "enable", "remove", "model swap")
"""Verbs that the thread of changes does, in order: the second waits while the first is held."""
_LEFT = ("classifier hangs", "journal locked")
"""Verbs that a daemon does not wait for when it ends."""
_OTHERS = tuple(name for name in VERBS if name not in (*_CHANGES, "start", *ENDING))
_CAM = AvConfig(id="cam", url=Url("rtsp://192.0.2.1/cam"), decode="cpu")
_CLIP = SyntheticConfig(id="clip", frames=5, pace="fast", width=16, height=16)


class History(RuleBasedStateMachine):
    """One daemon from its start to its end.

    Attributes:
        tried, verbs: histories, and steps of them, in this process so far.
        tell: told of each hundred.
    """

    tried = verbs = 0
    tell: Callable[[str], None] = staticmethod(lambda _: None)

    def __init__(self) -> None:
        super().__init__()
        History.tried += 1
        if History.tried % _TOLD == 0:
            self.tell(f"{History.tried} histories, {History.verbs} verbs so far")
        self.folders, self.stack = ExitStack(), ExitStack()
        self.pending: deque[tuple[str, End]] = deque()  # begun, and not ended yet
        self.rig: Rig | None = None
        self.mode = "live"

    @initialize(
        workers=st.booleans(),
        mode=st.sampled_from(["live", "live", "lossless"]),
        analysis=st.sampled_from(["apart", "here", "none"]),
        ready=st.booleans(),
    )
    def begin(self, workers: bool, mode: str, analysis: Analysis, ready: bool) -> None:
        """Args: whether it is ready before the first verb."""
        folder = Path(tempfile.mkdtemp(prefix="lookout-history-"))
        self.folders.callback(shutil.rmtree, folder, ignore_errors=True)
        self.mode = mode
        self.rig = Rig(folder, workers=workers, mode=mode, analysis=analysis)
        self.stack.enter_context(self.rig.signals())
        self.rig.start()
        if ready:
            self.rig.wait_ready()

    @property
    def running(self) -> Rig:
        assert self.rig is not None
        return self.rig

    @rule(verb=st.sampled_from(_CHANGES), hold=st.booleans())
    def change(self, verb: str, hold: bool) -> None:
        """A change, held if nothing else is."""
        History.verbs += 1
        hold = hold and not self.pending and self.running.app.health.is_ready
        self.pending.append((verb, VERBS[verb](self.running, hold)))

    @rule(verb=st.sampled_from(_OTHERS))
    def happen(self, verb: str) -> None:
        """Something that befalls it; once at a time."""
        History.verbs += 1
        if all(name != verb for name, _ in self.pending):
            self.pending.append((verb, VERBS[verb](self.running, False)))

    @rule(there=st.booleans())
    def change_camera(self, there: bool) -> None:
        """The source in a capture process comes or goes."""
        History.verbs += 1
        future = self.running.edit(lambda rows: [row for row in rows if row.id != "cam"] + ([_CAM] if there else []))
        self.pending.append(("camera", lambda: settle(future)))

    @rule()
    def play_clip(self) -> None:
        """A recording that ends by itself."""
        History.verbs += 1
        future = self.running.edit(lambda rows: [*(row for row in rows if row.id != "clip"), _CLIP])
        self.pending.append(("clip", lambda: settle(future)))

    @rule()
    def ask_for_nonsense(self) -> None:
        """A change that cannot be made is refused whole."""
        History.verbs += 1

        def refuse(_: object) -> list[object]:
            raise ConfigError("nonsense")

        future = self.running.edit(refuse)  # type: ignore[arg-type]
        self.pending.append(("nonsense", lambda: settle(future)))

    @precondition(lambda self: self.pending)
    @rule()
    def end_one(self) -> None:
        """The first that was begun comes to its end."""
        _, end = self.pending.popleft()
        end()

    @precondition(lambda self: not self.pending and self.rig is not None)  # what is drawn may not depend on time
    @rule()
    def look(self) -> None:
        """All is as the configuration says."""
        self.running.wait_ready()
        self.running.check_running(ended={"clip"})

    @precondition(lambda self: self.rig is not None)
    @rule()
    def step(self) -> None:
        """Some frames pass."""
        ledger = self.running.app.ledger
        before = sum(count.captured for count in ledger.counts().values())
        wait_until(lambda: self._moved(before), "frames come")

    def _moved(self, before: int) -> bool:
        now = sum(count.captured for count in self.running.app.ledger.counts().values())
        return now != before or not self._frames_may_come()

    def _frames_may_come(self) -> bool:
        """Nothing is held or hangs, and there is a source that could give some."""
        return not self.pending and any(row.id != "clip" for row in self.running.app.changes.config.active)

    def teardown(self) -> None:
        """It is told to end while things are held; then they are let go."""
        try:
            if self.rig is not None:
                self._end(self.rig)
        finally:
            if self.rig is not None:
                self.rig.open_all()
            self.stack.close()
            self.folders.close()

    def _end(self, rig: Rig) -> None:
        rig.wait_ready()
        how = _way_to_end(rig)
        how(rig)
        for name, end in self.pending:
            if name not in _LEFT:
                end()
        rig.wait_stopped()
        for name, end in self.pending:
            if name in _LEFT:
                end()
        self.pending.clear()
        self.stack.close()
        rig.end(PART_FAILED if how in (_fail, _lose_rules) else CUT_SHORT if self.mode == "lossless" else 0)


def _terminate(_: Rig) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _stop(rig: Rig) -> None:
    rig.app.request_stop()


def _fail(rig: Rig) -> None:
    """A lane fails."""
    rig.fails.set()
    wait_until(lambda: rig.app.is_stopping, "a detector that fails ends the daemon")


def _lose_rules(rig: Rig) -> None:
    """The rules' process is killed."""
    VERBS["rules die"](rig, True)


def _way_to_end(rig: Rig) -> Callable[[Rig], None]:
    last = _fail if rig.rules is None else _lose_rules
    return (_terminate, _stop, _terminate, _fail, _stop, last)[(len(rig.reloads) + len(rig.detectors)) % 6]


def profile(count: int, *, derandomize: bool, shrink: bool = True) -> settings:
    """How many histories.

    Args:
        derandomize: they are the same every time.
        shrink: one that fails is tried again with fewer steps.
    """
    return settings(
        max_examples=count,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=derandomize,
        database=None,
        phases=tuple(Phase) if shrink else (Phase.explicit, Phase.generate),
        print_blob=True,
        suppress_health_check=[*HealthCheck],
    )
