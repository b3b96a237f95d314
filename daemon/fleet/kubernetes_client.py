"""A client of the Kubernetes API: objects of one namespace, by the standard library alone. Any thread may call it."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from daemon.fleet.kubernetes_objects import Event, Object, ObjectList, RawEvent, Status, number
from daemon.fleet.port import CoordinatorAwayError, CoordinatorError
from daemon.redact import printable
from daemon.system.http_client import HttpClient, HttpConnection, HttpRequest

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Kind = Literal["leases", "configmaps"]
T = TypeVar("T")
R = TypeVar("R")
_PATHS = {"leases": "/apis/coordination.k8s.io/v1", "configmaps": "/api/v1"}
_VERSIONS = {"leases": ("coordination.k8s.io/v1", "Lease"), "configmaps": ("v1", "ConfigMap")}
_PAGE, _AT_ONCE = 500, 8
_MAX_TEXT, _MAX_ERROR = 300, 1 << 20  # characters of the server's own words, bytes of all that it says
_WATCH_S, _LATE_S = 30, 5.0  # a watch is asked for anew after so long, because a dead peer is silent too


class ConflictError(CoordinatorError):
    """The object is there already, or has changed since it was read."""


class NotFoundError(CoordinatorError):
    """There is no such object."""


class GoneError(CoordinatorError):
    """The server no longer has the changes since this version: list anew."""


@dataclass(frozen=True)
class KubernetesSettings:
    """May be pickled.

    Attributes:
        ca: of the server's certificate; None for plain HTTP.
        token_file: of the service account, None without one. Kubernetes replaces the token before it expires.
        limit_s: of each call.
    """

    host: str
    port: int
    namespace: str
    ca: Path | None = None
    token_file: Path | None = None
    limit_s: float = 5.0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class KubernetesClient:
    """Connections are made when they are needed, and kept.

    Raises (all methods but close):
        CoordinatorAwayError: no answer in time; a write may have been done nevertheless.
        ConflictError, NotFoundError, CoordinatorError.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        self.settings, self._address = settings, (settings.host, settings.port)
        self._http = HttpClient(_context(settings.ca) if settings.ca else None)
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def get(self, kind: Kind, name: str) -> Object | None:
        try:
            return self._object("GET", self._path(kind, name))
        except NotFoundError:
            return None

    def listed(self, kind: Kind, labels: Mapping[str, str]) -> tuple[list[Object], int]:
        """Objects with these labels, and the version of the list.

        A list that is too old for its next page is begun anew.
        """
        for _ in range(3):
            try:
                return self._pages(kind, labels)
            except GoneError:
                continue
        raise CoordinatorAwayError(f"Kubernetes at {self.settings}: lists end before they are read")

    def create(self, kind: Kind, name: str, content: Mapping[str, Any]) -> Object:
        """Raises ConflictError if it is there already."""
        version, title = _VERSIONS[kind]
        meta = {**content.get("metadata", {}), "name": name}
        return self._object(
            "POST", self._path(kind), {"apiVersion": version, "kind": title, **content, "metadata": meta}
        )

    def patch(self, kind: Kind, name: str, changes: Mapping[str, Any]) -> Object:
        """Merge changes into an object; None removes a value. A resourceVersion in them must still hold."""
        return self._object("PATCH", self._path(kind, name), changes)

    def delete(self, kind: Kind, name: str, uid: str, version: str = "") -> None:
        """Delete the object with this uid, and with this version if it is given.

        Raises:
            ConflictError: it is another object, or has changed.
        """
        conditions = {"uid": uid, "resourceVersion": version} if version else {"uid": uid}
        self._answer("DELETE", self._path(kind, name), {"preconditions": conditions})

    @contextmanager
    def watch(
        self, kind: Kind, labels: Mapping[str, str], version: int, opened: Callable[[HttpConnection], None]
    ) -> Iterator[Iterator[Event]]:
        """Changes after a version. They end after a while; then watch anew from the last one.

        Args:
            opened: gets the connection: who interrupts it ends the changes.

        Raises:
            GoneError: list anew.
        """
        query = {**_selector(labels), "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        path = f"{self._path(kind)}?{urlencode({**query, 'timeoutSeconds': _WATCH_S})}"
        connection, until = self._http.connection(self._address), monotonic() + self.settings.limit_s
        try:
            try:
                opened(connection)
                answer = connection.stream(self._request("GET", path), until, _WATCH_S + _LATE_S)
                content = b"" if answer.status == 200 else answer.read(_MAX_ERROR)
            except (OSError, HTTPException) as error:
                raise self._away(error) from error
            if answer.status != 200:
                raise self._refusal(answer.status, content)
            yield self._events(answer)
        finally:
            connection.close()

    def each(self, work: Callable[[T], R], rows: Iterable[T]) -> list[R]:
        """Do the same for many rows, some at once; raises the first error."""
        found = list(rows)
        if len(found) < 2:
            return [work(row) for row in found]
        with self._lock:
            self._threads = self._threads or _threads()
        return list(self._threads.map(work, found))

    def close(self) -> None:
        self._http.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def _pages(self, kind: Kind, labels: Mapping[str, str]) -> tuple[list[Object], int]:
        query, found = {**_selector(labels), "limit": _PAGE}, list[Object]()
        while True:
            content = self._answer("GET", f"{self._path(kind)}?{urlencode(query)}")
            page = self._decoded(content, _LIST)
            found += page.items
            if not page.metadata.next:
                return found, number(page.metadata.resource_version)
            query["continue"] = page.metadata.next

    def _path(self, kind: Kind, name: str = "") -> str:
        base = f"{_PATHS[kind]}/namespaces/{quote(self.settings.namespace)}/{kind}"
        return f"{base}/{quote(name)}" if name else base

    def _object(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Object:
        return self._decoded(self._answer(method, path, body), _OBJECT)

    def _decoded(self, content: bytes, decoder: msgspec.json.Decoder[T]) -> T:
        try:
            return decoder.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            text = f"Kubernetes at {self.settings}: an answer that cannot be read: {error}"
            raise CoordinatorError(text) from error

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        until = monotonic() + self.settings.limit_s
        try:
            answer = self._http.exchange(self._address, self._request(method, path, body), until)
        except (OSError, HTTPException) as error:
            raise self._away(error) from error
        if answer.status >= 300:
            raise self._refusal(answer.status, answer.content)
        return answer.content

    def _events(self, answer: HTTPResponse) -> Iterator[Event]:
        try:
            for line in answer:
                raw = self._decoded(line, _RAW_EVENT)
                if raw.type == "ERROR":
                    status = self._decoded(bytes(raw.object), _STATUS)
                    raise self._refusal(status.code, bytes(raw.object))
                yield Event(raw.type, self._decoded(bytes(raw.object), _OBJECT))
        except (OSError, HTTPException, ValueError) as error:
            raise self._away(error) from error

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> HttpRequest:
        """With the token, which is read for each request: Kubernetes replaces the file from time to time."""
        encoded = b"" if body is None else msgspec.json.encode(body)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers, file = {"Content-Type": kind, "Accept": "application/json"}, self.settings.token_file
        if file is None:
            return HttpRequest(method, path, encoded, headers)
        try:
            return HttpRequest(
                method, path, encoded, {**headers, "Authorization": f"Bearer {file.read_text().strip()}"}
            )
        except (OSError, UnicodeDecodeError) as error:
            raise CoordinatorError(f"{file}: the token of the service account cannot be read: {error}") from error

    def _refusal(self, status: int, content: bytes) -> CoordinatorError:
        try:
            text = msgspec.json.decode(content, type=Status).message
        except (msgspec.MsgspecError, UnicodeDecodeError):
            text = ""
        text = printable(" ".join((text or f"HTTP status {status}").split()))[:_MAX_TEXT]
        place = f"Kubernetes at {self.settings}: "
        if status == 401:
            return CoordinatorError(f"{place}it does not accept the token of the service account: {text}")
        if status == 403:
            return CoordinatorError(f"{place}{text}: see deploy/kubernetes-fleet/rbac.yaml")
        if status == 429 or status >= 500:
            return CoordinatorAwayError(place + text)
        kind = {404: NotFoundError, 409: ConflictError, 410: GoneError}.get(status, CoordinatorError)
        return kind(place + text)

    def _away(self, error: Exception) -> CoordinatorError:
        place = f"Kubernetes at {self.settings}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return CoordinatorError(f"{place}: its certificate is refused here: {error.verify_message}")
        if isinstance(error, TimeoutError):
            return CoordinatorAwayError(f"{place} does not answer in time")
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return CoordinatorAwayError(f"{place} does not answer: {printable(reason)[:_MAX_TEXT]}")


def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # the keeper of a lease has no use for it

    return ThreadPoolExecutor(_AT_ONCE, "kubernetes")


def in_cluster(namespace: str, ca: Path | None = None) -> KubernetesSettings:
    """Settings of a pod with a service account.

    Args:
        namespace: empty for the pod's own.

    Raises:
        CoordinatorError: this is no such pod.
    """
    folder = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        if not host or not port.isdecimal():
            raise FileNotFoundError
        own = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise CoordinatorError(
            "fleet.coordinator: kubernetes:// works in a pod with a service account: "
            "for commands use `kubectl exec POD -- lookout fleet ...`"
        ) from error
    return KubernetesSettings(host, int(port), namespace or own, ca or folder / "ca.crt", folder / "token")


def _context(ca: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        reason = "holds no certificate in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise CoordinatorError(f"{ca}: {reason}") from error
    return context


def _selector(labels: Mapping[str, str]) -> dict[str, Any]:
    return {"labelSelector": ",".join(f"{name}={value}" for name, value in labels.items())}


_OBJECT, _LIST = msgspec.json.Decoder(Object), msgspec.json.Decoder(ObjectList)
_RAW_EVENT, _STATUS = msgspec.json.Decoder(RawEvent), msgspec.json.Decoder(Status)
