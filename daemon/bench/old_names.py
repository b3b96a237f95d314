"""Commands of `lookout bench` that have another name now: each is refused with the new one."""

from __future__ import annotations

import click

_CHECKOUT = ", in a checkout"
BENCH = {
    "streams": "lookout bench run --repeats 1",
    "replay": "lookout bench run",
    "once": "lookout bench run --until-end --repeats 1",
    "sweep": "lookout bench search --over batch=1,2,4,8",
    "capacity": "lookout bench search --most sources",
    "decode": "lookout bench part decode",
    "engine": "lookout bench part engine",
    "overhead": f"python -m tests.bench python{_CHECKOUT}",
    "efficiency": f"python -m tests.bench python CLIP{_CHECKOUT}",
    "dashboard": f"python -m tests.bench dashboard{_CHECKOUT}",
    "verify": "lookout bench compare",
    "peers": f"python -m tests.peers{_CHECKOUT}",
    "loop": f"python -m tests.peers --only plain{_CHECKOUT}",
    "churn": f"python -m tests.gpu.churn{_CHECKOUT}",
}
PART = {name: f"python -m tests.bench {name}{_CHECKOUT}" for name in ("python", "analytics", "fleet")}
PEERS = f"python -m tests.bench engine --peer{_CHECKOUT}"


def add_old_names(bench: click.Group, part: click.Group) -> None:
    """Add the old commands to their groups, hidden."""
    for old, new in BENCH.items():
        bench.add_command(_renamed(f"bench {old}", new), old)
    for old, new in PART.items():
        part.add_command(_renamed(f"bench part {old}", new), old)


def _renamed(old: str, new: str) -> click.Command:
    def refuse() -> None:
        raise click.UsageError(f"{old} is now: {new}")

    lenient = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    return click.Command(old, callback=refuse, hidden=True, add_help_option=False, context_settings=lenient)
