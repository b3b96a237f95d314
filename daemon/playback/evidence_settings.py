"""Settings of evidence for the API of recordings, which the stores do not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from daemon.errors import ConfigError, LookoutError

if TYPE_CHECKING:
    from daemon.config.root import Config


@dataclass(frozen=True)
class EvidenceSettings:
    """
    Attributes:
        key: the file of the key that signs; None for no signature.
        journal: the file of events; None without one.
        sources: their settings without secrets, as they were when the process began, by id.
        models: files of all models.
    """

    key: Path | None = None
    journal: Path | None = None
    sources: dict[str, Any] = field(default_factory=dict)
    models: Sequence[Path] = ()


NO_SETTINGS: Final = EvidenceSettings()


def evidence_settings(config: Config) -> EvidenceSettings:
    """Those of a configuration."""
    from daemon.analytics.journal import journal_path
    from daemon.recording.evidence.background import model_files, settings_of

    sources = {source.id: settings_of(config, source.id) for source in config.sources}
    return EvidenceSettings(config.record.evidence_key, journal_path(config.events), sources, model_files(config))


def check_key(config: Config) -> None:
    """
    Raises:
        ConfigError: the key that signs evidence cannot be used.
    """
    if config.record.evidence_key is None:
        return
    from daemon.recording.evidence.signing import read_key

    try:
        read_key(config.record.evidence_key)
    except LookoutError as error:
        raise ConfigError(f"record.evidence_key: {error}") from error
