"""Tries a model in a child process before the daemon opens it.

A model may crash the process that opens it, and its first run may never return. So a model for a running daemon is
opened, and run once, in a process that can be killed. An engine that it needs is built there; the daemon finds it in
the cache.
"""

from __future__ import annotations

import os
import signal
from contextlib import closing, suppress
from dataclasses import dataclass

import msgspec

from daemon.config.root import LogConfig
from daemon.log import logging
from daemon.system.children import reap, spawn
from daemon.system.mps import environment_without_mps
from daemon.system.stop_token import StoppedError, StopToken
from detectors.factory import Backend, open_detector
from detectors.port import DetectorError, Options

_POLL_S = 0.05
_REAP_TIMEOUT_S = 1.0
_NICE = 10  # below the daemon's own threads


@dataclass(frozen=True)
class _Trial:
    backend: Backend
    options: Options
    log: LogConfig


class _Answer(msgspec.Struct, frozen=True):
    """Attributes:
    error: why the model cannot be used, None if it can.
    """

    error: str | None


def try_model(backend: Backend, options: Options, log: LogConfig, stop: StopToken) -> None:
    """Open a model and run it once, in a child process that is killed when `stop` is set.

    Raises:
        DetectorError: the model cannot be used, or the process ended.
        StoppedError: the process was killed.
    """
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise _no_trial(options, error) from error
    with os.fdopen(reading, "rb") as answers:
        try:
            trial = _Trial(backend, options, log)
            process = spawn("daemon.control.model_trial", trial, [writing], environment_without_mps())
        except OSError as error:  # no descriptor or no process
            raise _no_trial(options, error) from error
        finally:
            os.close(writing)
        try:
            while process.poll() is None:
                if stop.wait(_POLL_S):
                    raise StoppedError
        finally:
            process.kill()
            reap(process, _REAP_TIMEOUT_S)
        content = answers.read()
    if content:
        answer = msgspec.json.decode(content, type=_Answer)
        if answer.error:
            raise DetectorError(answer.error)
    if process.returncode or not content:
        code = process.returncode or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        raise DetectorError(f"model {options.path}: the process that tried it {how}")


def _no_trial(options: Options, error: OSError) -> DetectorError:
    return DetectorError(f"model {options.path}: no process can be started to try it: {error.strerror}")


def main(trial: _Trial, answers: int) -> int:
    """
    Args:
        answers: pipe to the daemon, for an `_Answer`.
    """
    os.nice(_NICE)
    with logging(trial.log), os.fdopen(answers, "wb") as answer:
        try:
            _try_picture(trial)
            error = None
        except DetectorError as failure:
            error = str(failure)
        with suppress(BrokenPipeError):  # the daemon does not wait any more
            answer.write(msgspec.json.encode(_Answer(error)))
            answer.flush()
        os._exit(0)  # skip the libraries' shutdown


def _try_picture(trial: _Trial) -> None:
    with closing(open_detector(trial.backend, trial.options)) as detector:
        lane = detector.lane()
        lane.detect([detector.sample(640, 360)])
