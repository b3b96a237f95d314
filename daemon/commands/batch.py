"""`lookout batch`: analyses an archive of recordings."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from daemon.batch.clips import Clip, find_clips
from daemon.batch.folder import ResultFolder
from daemon.batch.open_store import open_store
from daemon.batch.player import DaemonPlayer
from daemon.batch.progress import BatchProgress, LineProgress, TerminalProgress
from daemon.batch.settings import recipe_of
from daemon.batch.store import BatchView
from daemon.batch.worker import STOPPED, BatchWorker, Job, Waiting
from daemon.clock import Bell, SystemClock
from daemon.commands.groups.options import FIRST_MODEL
from daemon.commands.model import ChosenModel, choose
from daemon.config.load import load
from daemon.config.model import ModelConfig
from daemon.config.models import check_model_name
from daemon.config.root import Config, LogConfig, check
from daemon.errors import ConfigError
from daemon.log import logging
from daemon.redact import printable
from daemon.system.signals import stopping_on_signals
from daemon.system.stop_token import StoppedError, StopToken
from daemon.system.tuning import disable_core_dumps


@dataclass(frozen=True)
class BatchOptions:
    """See `lookout batch --help`."""

    clips: Sequence[str]
    out: Path
    config: Path | None = None
    model: str | None = None
    labels: str | None = None
    coordinator: str | None = None
    fleet: str | None = None
    batch: str | None = None
    at_once: int | None = None
    retry_failed: bool = False


def run(options: BatchOptions) -> int:
    """Analyse the clips; returns the exit code.

    Raises:
        LookoutError, DetectorError: it cannot be done.
    """
    console = Console(file=sys.stderr)
    clips = find_clips(options.clips)  # before any download
    config = _config_of(options, console)
    stop = StopToken()
    disable_core_dumps()
    with ExitStack() as stack:
        stack.enter_context(stopping_on_signals(stop.set))
        stack.enter_context(logging(_quieter(config)))
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="lookout-"))
        recipe = recipe_of(config, f"ipc://{sockets}/messages")
        progress = stack.enter_context(closing(_progress_of(clips, console)))
        if config.sources:
            progress.note("the configuration's own sources are not played; batch.source has the keys for clips")
        return _work(
            options, Job(clips, recipe, _folder_of(options, config), options.retry_failed), config, progress, stop
        )


def _work(options: BatchOptions, job: Job, config: Config, progress: BatchProgress, stop: StopToken) -> int:
    with ExitStack() as undo:
        undo.callback(job.folder.close)
        store = open_store(config, job, options.batch)
        undo.pop_all()
    bell = Bell()
    stop.on_set(bell.ring)
    player = DaemonPlayer(job.recipe, bell.ring, stop)
    worker = BatchWorker(job, store, player, progress, Waiting(SystemClock(), bell, stop))
    try:
        code = worker.run()
    except StoppedError:
        code = STOPPED
    _summarise(worker.view, job, code, progress)
    return code


def _config_of(options: BatchOptions, console: Console) -> Config:
    if options.config is not None:
        config = load(options.config, may_be_empty=True)
        if config.models:
            config = _with_choice(config, options)
        elif options.model is not None:
            chosen = _fetched(options.model, console)
            keys: dict[str, Any] = {"path": chosen.path}
            if chosen.labels:  # the others are about another file
                keys |= dict.fromkeys(("mean", "std", "activation", "box_units", "first_class"))
                keys |= {"labels": chosen.labels, "head": "auto"}
            config = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, **keys))
        if options.labels is not None and not config.models:
            config = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, labels=options.labels))
    else:
        chosen = _fetched(options.model or FIRST_MODEL, console)
        config = Config(model=ModelConfig(path=chosen.path, labels=options.labels or chosen.labels), sources=[])
    changed: dict[str, str] = {}
    if options.coordinator is not None:
        changed["coordinator"] = options.coordinator
    if options.fleet is not None:
        changed["name"] = options.fleet
    batch = config.batch if options.at_once is None else msgspec.structs.replace(config.batch, at_once=options.at_once)
    fleet = msgspec.structs.replace(config.fleet, **changed)
    return check(msgspec.structs.replace(config, fleet=fleet, batch=batch), may_be_empty=True)


def _with_choice(config: Config, options: BatchOptions) -> Config:
    """With the one of several models that `--model` names.

    Raises:
        ConfigError: it names none of them, or there are labels.
    """
    if options.labels is not None:
        raise ConfigError("--labels: the configuration has `models`: set the labels of each there")
    if options.model is None:
        return config
    check_model_name(config.models, options.model, "--model", "looks at recordings")
    batch = msgspec.structs.replace(config.batch, source={**config.batch.source, "model": options.model})
    return msgspec.structs.replace(config, batch=batch)


def _fetched(named: str, console: Console) -> ChosenModel:
    model = choose(named)
    model.fetch(console)
    return model


def _folder_of(options: BatchOptions, config: Config) -> ResultFolder:
    return ResultFolder(options.out, exclusive=config.fleet.coordinator is None)


def _quieter(config: Config) -> LogConfig:
    """The daemon inside warns of clips that cannot be played, which are reported here anyway."""
    if config.log.file is None and config.log.level in ("info", "warning"):
        return msgspec.structs.replace(config.log, level="error")
    return config.log


def _progress_of(clips: Sequence[Clip], console: Console) -> BatchProgress:
    kind = TerminalProgress if console.is_terminal else LineProgress
    return kind(clips, console, SystemClock())


def _summarise(view: BatchView, job: Job, code: int, progress: BatchProgress) -> None:
    failed = {clip: outcome for clip, outcome in view.outcomes.items() if outcome.state == "failed"}
    done = [outcome for outcome in view.outcomes.values() if outcome.state == "done"]
    here = sum(outcome.folder == job.folder.id for outcome in done)
    progress.note(f"{len(done)} of {len(job.clips)} clips have results, {here} of them in {job.folder.root}")
    if done and not here:
        progress.note("another name, such as --batch again, analyses them anew")
    for where in sorted({outcome.where or "" for outcome in done if outcome.folder != job.folder.id}):
        progress.note(f"{sum(outcome.where == where for outcome in done)} are in {where}")
    for clip, outcome in sorted(failed.items()):
        progress.note(f"failed: {printable(job.clips[clip].name)}: {outcome.reason}")
    if failed:
        progress.note("--retry-failed tries these again")
    if code == STOPPED:
        progress.note("stopped; the same command goes on from here")
