"""Errors of etcd as those of the coordinator's port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from daemon.etcd.errors import CompactedError, EtcdAwayError, EtcdError, LeaseNotFoundError
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError, LeaseLostError


@contextmanager
def coordinator_errors() -> Iterator[None]:
    try:
        yield
    except CompactedError:  # of a watch alone, which the coordinator begins anew
        raise
    except LeaseNotFoundError as error:
        raise LeaseLostError("the lease of this member has ended") from error
    except EtcdAwayError as error:
        raise CoordinatorAwayError(str(error)) from error
    except EtcdError as error:
        raise CoordinatorError(str(error)) from error
