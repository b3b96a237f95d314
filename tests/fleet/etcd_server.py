"""Real etcd servers on free ports, one or a cluster, with certificates and users where a test wants them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from daemon.etcd.client import EtcdClient
from daemon.etcd.errors import EtcdAwayError, EtcdError
from daemon.etcd.settings import Endpoint, EtcdSettings, Tls, User
from tests.support.daemon import PATIENCE_S, halt
from tests.support.ports import free_port


@dataclass(frozen=True)
class Member:
    """One server of a cluster, before it runs."""

    name: str
    client_port: int
    peer_port: int

    @property
    def peer(self) -> str:
        return f"{self.name}=http://127.0.0.1:{self.peer_port}"


class EtcdServer:
    """A server that may be killed, paused and started again; its data stays in the folder.

    Attributes:
        log: what it has written.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        certificates: Certificates | None = None,
        member: Member | None = None,
        cluster: Sequence[Member] = (),
    ) -> None:
        self.folder, self.arguments = folder, arguments
        self.certificates = certificates
        self.member = member or Member("one", free_port(), free_port())
        self.cluster = cluster or [self.member]
        self.log = folder / "etcd.log"
        self.data = folder / "data"
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self.member.client_port

    @property
    def url(self) -> str:
        return f"{'https' if self.certificates else 'http'}://127.0.0.1:{self.port}"

    def settings(self, *, tls: Tls | None = None, user: User | None = None, limit_s: float = 10.0) -> EtcdSettings:
        return EtcdSettings((Endpoint("127.0.0.1", self.port),), tls, user, limit_s)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        peer = f"http://127.0.0.1:{self.member.peer_port}"
        command = ["etcd", "--name", self.member.name, "--data-dir", str(self.data), "--logger=zap", "--log-level=warn"]
        command += [f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}"]
        command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        command += [f"--initial-cluster={','.join(member.peer for member in self.cluster)}"]
        command += self.certificates.of_server() if self.certificates else []
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*command, *self.arguments], stdout=log, stderr=log)

    def wait(self) -> None:
        until = monotonic() + PATIENCE_S
        with closing(EtcdClient(self.settings(tls=self.certificates.tls if self.certificates else None))) as client:
            while not _answers(client):
                if monotonic() > until or self._running().poll() is not None:
                    raise AssertionError(f"etcd does not start:\n{self.log.read_text()[-3000:]}")
                sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None

    close = kill

    def pause(self) -> None:
        halt(self._running().pid)

    def resume(self) -> None:
        os.kill(self._running().pid, signal.SIGCONT)

    def restore(self, backup: Path) -> None:
        """Replace the data of a server that does not run by those of a backup (`etcdctl snapshot save`)."""
        shutil.rmtree(self.data)
        self.ctl(
            *("snapshot", "restore", str(backup), "--data-dir", str(self.data), "--name", self.member.name),
            f"--initial-cluster={self.member.peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{self.member.peer_port}",
        )

    def ctl(self, *arguments: str, user: str | None = None) -> str:
        done = self._etcdctl(*arguments, user=user)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _etcdctl(self, *arguments: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        options = ["--endpoints", self.url]
        options += self.certificates.of_client() if self.certificates else []
        options += ["--user", user] if user else []
        environment = {**os.environ, "ETCDCTL_API": "3"}
        command = ["etcdctl", *options, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process


def _answers(client: EtcdClient) -> bool:
    try:
        client.get(b"/")
    except EtcdAwayError:
        return False
    except EtcdError:
        """It wants a user."""
    return True


class EtcdCluster:
    """Three servers."""

    def __init__(self, folder: Path) -> None:
        members = [Member(f"m{number}", free_port(), free_port()) for number in range(3)]
        self.servers = [EtcdServer(folder / member.name, member=member, cluster=members) for member in members]

    def start(self) -> None:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait()

    def settings(self, limit_s: float = 10.0) -> EtcdSettings:
        return EtcdSettings(tuple(Endpoint("127.0.0.1", server.port) for server in self.servers), limit_s=limit_s)

    def leader(self) -> EtcdServer:
        """The leader, once there is one."""
        until = monotonic() + PATIENCE_S
        while monotonic() < until:
            for server in self.servers:
                done = server._etcdctl("endpoint", "status", "--write-out=json")
                if done.returncode == 0 and done.stdout.strip():
                    status = json.loads(done.stdout)[0]["Status"]
                    if status["leader"] == status["header"]["member_id"]:
                        return server
            sleep(0.05)
        raise AssertionError("the cluster has no leader")

    def close(self) -> None:
        for server in self.servers:
            server.kill()


class Certificates:
    """A CA, and certificates of a server and of a client that it has signed."""

    def __init__(self, folder: Path, name: str = "lookout test") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca, self._ca_key = folder / "ca.pem", folder / "ca.key"
        _openssl(*_NEW_KEY, "-x509", "-days", "2", "-subj", f"/CN={name}", "-keyout", self._ca_key, "-out", self.ca)
        self.server = self.signed("server", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        self.client = self.signed("client", "extendedKeyUsage=clientAuth")
        self.tls = Tls(self.ca, *self.client)

    def signed(self, name: str, extension: str) -> tuple[Path, Path]:
        """Certificate and key."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"{extension}\n")
        _openssl(*_NEW_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signing: list[str | Path] = [
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.ca,
            "-CAkey",
            self._ca_key,
            "-CAcreateserial",
        ]
        _openssl(*signing, "-days", "2", "-extfile", extensions, "-out", certificate)
        return certificate, key

    def of_server(self) -> list[str]:
        certificate, key = self.server
        return ["--cert-file", str(certificate), "--key-file", str(key), "--trusted-ca-file", str(self.ca)]

    def of_client(self) -> list[str]:
        certificate, key = self.client
        return ["--cacert", str(self.ca), "--cert", str(certificate), "--key", str(key)]


_NEW_KEY = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=PATIENCE_S)
