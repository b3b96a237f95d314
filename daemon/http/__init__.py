"""The daemon's HTTP API: health, metrics, sources and snapshots. Its libraries are an optional extra."""

from __future__ import annotations

from daemon.errors import ConfigError


def check_libraries() -> None:
    """Before `daemon.http.kit` is imported.

    Raises:
        ConfigError: a library is not installed.
    """
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"http needs {error.name}: pip install 'lookoutd[http]'") from error
