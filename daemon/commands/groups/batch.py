"""Analyse archives of recordings."""

from __future__ import annotations

from pathlib import Path

import click

from daemon.commands.environment import ConfigFile
from daemon.commands.groups.options import LABELS, complete_models, examples
from daemon.commands.paths import InputName, OutputFolder


@click.command(
    epilog=examples(
        "lookout batch archive/ --out results/",
        "lookout batch 'cam*/*.mkv' --out results/ --model yolox_tiny",
        "lookout batch archive/ --out results/ --coordinator etcd://192.0.2.5:2379",
    )
)
@click.argument("clips", nargs=-1, required=True, type=InputName(), metavar="CLIP...")
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    type=OutputFolder(),
    help="Folder of the results, one CLIP.jsonl for each recording, in the same folders as the recordings.",
)
@click.option("-c", "--config", type=ConfigFile(), help="Configuration file: the model, and how to track.")
@click.option(
    "--model",
    type=InputName(),
    shell_complete=complete_models,
    help="ONNX file, or a name of `lookout model list`; of a configuration with several models, the name of one.  "
    "[default: the configuration's, or yolox_nano]",
)
@LABELS
@click.option("--coordinator", metavar="URL", help="etcd://HOST:2379, which shares the clips out among machines.")
@click.option("--name", "fleet", metavar="FLEET", help="Fleet that the batch belongs to.  [default: lookout]")
@click.option(
    "--batch", metavar="NAME", help="Name of the batch.  [default: made from the clips, the model and the settings]"
)
@click.option(
    "--at-once", type=click.IntRange(1, 256), help="Clips that are played at a time.  [default: by cores or GPU]"
)
@click.option("--retry-failed", is_flag=True, help="Try clips that have failed again.")
def batch(
    clips: tuple[str, ...],
    out: Path,
    config: Path | None,
    model: str | None,
    labels: str | None,
    coordinator: str | None,
    fleet: str | None,
    batch: str | None,
    at_once: int | None,
    retry_failed: bool,
) -> int:
    """Analyse every frame of recordings, and write one result file for each.

    Each CLIP is a file, a folder with all in it, or a pattern in quotes. Recordings that have a result already are
    passed over, so the same command goes on where it was stopped. With a coordinator, start the same command on several
    machines: each recording is analysed by one of them, and those of a machine that dies by another.

    The exit code is 0 if all recordings have a result, 1 if some have failed, 5 if it was stopped before the end.
    """
    from daemon.commands.batch import BatchOptions, run

    return run(BatchOptions(clips, out, config, model, labels, coordinator, fleet, batch, at_once, retry_failed))
