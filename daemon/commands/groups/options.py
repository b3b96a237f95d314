"""Options that several groups share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
from click.shell_completion import CompletionItem

from daemon.commands.environment import ConfigFile
from daemon.commands.numbers import Number
from daemon.commands.paths import InputName, InputPath
from daemon.errors import ConfigError, LookoutError
from daemon.fleet_config import FleetConfig, fleet_of
from detectors.factory import Provider
from detectors.port import Precision
from detectors.semantics import Activation, BoxUnits, Semantics

if TYPE_CHECKING:
    from lookout.members import MemberEndpoints

_Command = TypeVar("_Command", bound=Callable[..., Any])


def complete_models(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the catalogue, and files where none of them begins like that."""
    from daemon.commands.catalogue import CATALOGUE, DEMO

    names = [name for name in (*(entry.name for entry in CATALOGUE), DEMO) if name.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *map(CompletionItem, names)]


CONFIG = click.option(
    "-c",
    "--config",
    type=ConfigFile(),
    default="config.yaml",
    show_default=True,
    help="Configuration file.",
)
CACHE = click.option("--cache", type=InputPath(), help="Cache folder.  [default: ~/.cache/lookout]")
DEVICE = click.option("--device", default=0, show_default=True, type=click.IntRange(0), help="Number of the GPU.")
HEAD = click.option("--head", default="auto", show_default=True, help="Layout of the outputs, as model.head.")
INPUT_SIZE = click.option(
    "--input-size",
    nargs=2,
    type=click.IntRange(1),
    callback=lambda _, __, size: size or None,
    help="Width and height, for a model that leaves them open.",
)
PID = click.IntRange(1, 1 << 22)  # Linux gives no larger number
PRECISION = click.option("--precision", default="auto", show_default=True, type=click.Choice(get_args(Precision)))
PROVIDER = click.option("--provider", type=click.Choice(get_args(Provider)), help="Of onnxruntime, as model.provider.")
PROVIDER_DEVICE = click.option("--provider-device", help="Such as GPU, as model.provider_device.")
THREADS = click.option("--threads", default=0, show_default=True, type=click.IntRange(0), help="Of the CPU, 0 for all.")
ENDPOINT = "tcp://127.0.0.1:5556"
FIRST_MODEL = "yolox_nano"  # small, fast on any machine, and of a permissive licence
LABELS = click.option("--labels", type=InputName(), help="Labels file, or coco, for a model without.")
MODEL = click.option(
    "--model",
    type=InputName(),
    shell_complete=complete_models,
    help="ONNX file, or a name of `lookout model list`.  [default: yolox_nano]",
)
_SEMANTICS = [
    click.option("--mean", nargs=3, type=Number(0, 255), help="Of the model's colours, as model.mean."),
    click.option("--std", nargs=3, type=Number(0, 255), help="Their deviation, as model.std."),
    click.option("--activation", type=click.Choice(get_args(Activation)), help="Of logits, as model.activation."),
    click.option("--box-units", type=click.Choice(get_args(BoxUnits)), help="Of chosen boxes, as model.box_units."),
    click.option("--first-class", type=click.IntRange(0, 1), help="As model.first_class."),
]
OWN_TOKEN = click.option("--token", help="Of the HTTP API.  [default: one of http in the file, else LOOKOUT_TOKEN]")
URL = click.option("--url", help="HTTP API of the daemon, instead of that of the file: http://HOST:9105.")
FLEET = click.option(
    "--fleet",
    type=InputName(),
    metavar="ADDRESS|FILE",
    help="Follow the members of a fleet: etcd://HOST:2379/NAME, or a configuration that has it.",
)


def examples(*lines: str) -> str:
    """Examples as the end of a command's help, one a line, with a comment behind it or without."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def renamed(*old: str, now: str) -> Callable[[_Command], _Command]:
    """Hidden options with old spellings, each of which is refused with the present one."""

    def refuse(spelling: str, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"{spelling} is now: {now}")

    def wrap(command: _Command) -> _Command:
        for spelling in old:
            callback = partial(lambda spelling, _, __, value: refuse(spelling, value), spelling)
            command = click.option(spelling, hidden=True, expose_value=False, is_eager=True, callback=callback)(command)
        return command

    return wrap


def takes_builder_level(default: int = 3) -> Callable[[_Command], _Command]:
    """--builder-level, which was --level."""

    def wrap(command: _Command) -> _Command:
        return click.option(
            "--builder-level",
            default=default,
            show_default=True,
            type=click.IntRange(0, 5),
            help="How long the engine builder looks for the fastest, as model.builder_level.",
        )(renamed("--level", now="--builder-level")(command))

    return wrap


def takes_semantics(command: Callable[..., int]) -> Callable[..., int]:
    """A command with options for what a model's input and outputs mean; they come as one, `semantics`."""

    def wrapped(
        mean: tuple[float, float, float] | None,
        std: tuple[float, float, float] | None,
        activation: Activation | None,
        box_units: BoxUnits | None,
        first_class: int | None,
        **values: Any,
    ) -> int:
        semantics = Semantics(mean or None, std or None, None, activation, box_units, first_class)
        return command(semantics=semantics, **values)

    taking: Callable[..., int] = update_wrapper(wrapped, command)  # first: it brings the command's other options
    for option in reversed(_SEMANTICS):
        taking = option(taking)
    return taking


def keys_from(server_key: str | None, secret_key: Path | None, fleet: str | None) -> dict[str, object]:
    """Keys and fleet of a subscriber.

    Raises:
        LookoutError: a key would not be used, or there is no such fleet.
    """
    if secret_key is not None and server_key is None and fleet is None:
        raise LookoutError("--secret-key needs --server-key: nothing is encrypted without the daemon's public key")
    return {"server_key": server_key, "secret_key": secret_key, "fleet": members_from(fleet)}


def fleet_from(text: str | None) -> FleetConfig | None:
    """The fleet of an option's value.

    Raises:
        ConfigError: it names none.
    """
    if text is None:
        return None
    if "://" in text:
        return fleet_of(text)
    from daemon.config.load import load

    fleet = load(Path(text)).fleet
    if fleet.coordinator is None:
        raise ConfigError(f"{text}: has no fleet.coordinator")
    return fleet


def members_from(text: str | None) -> MemberEndpoints | None:
    """A subscriber's view of the members of the fleet that an option's value names; None without a value.

    Raises:
        LookoutError: it names none, or the coordinator's address or files cannot be used.
    """
    fleet = fleet_from(text)
    if fleet is None:
        return None
    from daemon.fleet.endpoints import MemberEndpoints

    return MemberEndpoints(fleet)
