"""`lookout recordings`: what it does with evidence."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from daemon.clock import Clock, SystemClock, local_text
from daemon.config.load import load
from daemon.errors import ConfigError
from daemon.progress import progress
from daemon.recording.evidence.background import Background, digests_of, model_files, settings_of
from daemon.recording.evidence.check import Checked, Finding, check_folder
from daemon.recording.evidence.content import EvidenceOrder
from daemon.recording.evidence.folder import ExportedEvidence, write_folder
from daemon.recording.evidence.manifest import MANIFEST, SUMS
from daemon.recording.evidence.signing import SigningKey, make_key, read_key, read_public_key
from daemon.recording.index import IndexReader
from daemon.recording.store import Store
from daemon.redact import printable, scrub

FOUND = 1  # exit code


def export_evidence(
    store: Store,
    index: IndexReader,
    config: Path,
    source: str,
    times: tuple[int, int],
    out: Path,
    *,
    key: SigningKey | None,
    by: str,
    clock: Clock | None = None,
) -> ExportedEvidence:
    """Write the evidence of a time to a folder; see `daemon.recording.evidence.folder.write_folder`.

    Args:
        config: of the daemon, for the settings of the source and for the journal.
        times: UTC ns.
        by: the user.
    """
    begin, end = times
    order = EvidenceOrder(source, begin, end, (clock or SystemClock()).utc_ns(), by, background_of(config, source), key)
    try:
        with progress("export", "MB") as shown:
            return write_folder(store, index, order, out, shown.tell)
    except KeyboardInterrupt:
        click.echo(f"interrupted: there is no {out}", err=True)
        raise


def background_of(config: Path, source: str) -> Background:
    """The settings and the journal that a configuration names; without one the reason."""
    from daemon.analytics.journal import journal_path

    try:
        found = load(config, may_be_empty=True)
    except ConfigError as error:
        return Background(reason=scrub(str(error)))
    settings = settings_of(found, source)
    reason = None if settings is not None else f"{config}: has no source of this name"
    return Background(settings, reason, journal_path(found.events), digests_of(model_files(found)))


def tell(found: ExportedEvidence, out: Path) -> None:
    """Print what an export has made."""
    for gap in found.gaps:
        words = f"{gap.cause}, {scrub(gap.detail)}" if gap.detail else gap.cause
        _say(f"not there: {local_text(gap.begin)} to {local_text(gap.end)}: {words}")
    for missing in found.missing:
        why = "deleted by the limits of the store" if missing.expired else "removed by somebody"
        _say(f"not there: a recording between {local_text(missing.begin)} and {local_text(missing.end)}: {why}")
    for fault in found.faults:
        _say(f"damaged: {local_text(fault.begin)} to {local_text(fault.end)}: {fault.path}: {fault.detail}")
    signed = f"signed by {found.signed_by}" if found.signed_by else "not signed"
    click.echo(printable(f"{out}: {found.files} files, {found.bytes / 1e6:.1f} MB, {signed}"))
    click.echo(f"SHA-256 of {SUMS}, to be noted elsewhere: {found.sums_digest}")


def check(folder: Path, public_key: Path | None, *, as_json: bool) -> int:
    """Check an evidence folder; returns the exit code."""
    found = check_folder(folder, read_public_key(public_key) if public_key else None)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1))
        return FOUND if found.findings else 0
    for finding in found.findings:
        click.echo(_line(finding))
    problems = len(found.findings)
    click.echo(
        f"{found.files} files, {found.bytes / 1e9:.3f} GB: {problems or 'no'} problem{'' if problems == 1 else 's'}"
    )
    click.echo(_whose(found))
    return FOUND if found.findings else 0


def is_evidence(given: str | None, *, has_key: bool) -> bool:
    """Whether a folder is meant, and not a source."""
    if given is None:
        return False
    path = Path(given)
    return has_key or (path / MANIFEST).exists() or (path / SUMS).exists() or ("/" in given and path.is_dir())


def make(path: Path) -> None:
    """Make a key for signatures."""
    made = make_key(path)
    click.echo(f"{path}: the key that signs: keep it secret, and keep a copy")
    click.echo(f"{path}.pub: give this one to all who are to check, with its fingerprint: {made.fingerprint}")


def key_of(path: Path | None) -> SigningKey | None:
    return None if path is None else read_key(path)


def _whose(found: Checked) -> str:
    if found.signed_by is None:
        return f"not signed: compare the SHA-256 of {SUMS} with what was noted: {found.sums_digest}"
    if found.is_known:
        return f"signed by the key that was given, {found.signed_by}"
    return f"signed by {found.signed_by}, a key that lies in the folder itself: give yours with --public-key"


def _line(finding: Finding) -> str:
    when = ""
    if finding.begin is not None and finding.end is not None:
        when = f" from {local_text(finding.begin)} to {local_text(finding.end)}"
    return printable(f"{finding.kind}{when}: {finding.path}: {finding.detail}")


def _say(line: str) -> None:
    click.echo(printable(line), err=True)
