"""From a configuration to a coordinator: files of passwords and certificates, addresses."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from daemon.errors import LookoutError
from daemon.fleet.open_coordinator import open_coordinator
from daemon.fleet_config import FleetConfig
from daemon.redact import Secret
from tests.fleet.etcd_server import EtcdServer
from tests.support.ports import free_port


@pytest.mark.needs("etcd-server", "etcd-client")
def test_the_coordinator_of_a_configuration_works(etcd: EtcdServer) -> None:
    addresses = f"localhost:{free_port()},127.0.0.1:{etcd.port}"
    with closing(open_coordinator(FleetConfig(coordinator=f"etcd://{addresses}", name="north/hall"))) as coordinator:
        coordinator.drain("a", "x")
        assert coordinator.view().drained == {"a": "x"}


def test_an_address_may_be_of_ipv6() -> None:
    port = free_port()
    coordinator = open_coordinator(FleetConfig(coordinator=f"etcd://[::1]:{port}"))
    with closing(coordinator), pytest.raises(LookoutError, match=rf"etcd does not answer: \[::1\]:{port}: "):
        coordinator.view()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    assert _fault(password_file=tmp_path / "none") == f"fleet.password_file: {tmp_path}/none: No such file or directory"
    assert _fault(password_file=empty) == f"fleet.password_file: {empty}: its first line is empty"
    assert _fault(password_file=binary) == f"fleet.password_file: {binary}: is not UTF-8"
    assert _fault(tls_ca=tmp_path / "ca.pem", password=Secret("x")) == f"{tmp_path}/ca.pem: No such file or directory"


def _fault(**values: Path | Secret) -> str:
    fleet = FleetConfig(coordinator="etcds://127.0.0.1:1", user="camera", **values)  # type: ignore[arg-type]
    with pytest.raises(LookoutError) as error:
        open_coordinator(fleet)
    return str(error.value)
