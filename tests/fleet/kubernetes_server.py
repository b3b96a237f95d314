"""A FAKE of the Kubernetes API: no Kubernetes, but its promises about Leases and ConfigMaps as they are documented.

It keeps resource versions, uids, conflicts, preconditions, merge patches, selectors, pages, watches with bookmarks,
"410 Gone" after a compaction, tokens and the verbs of a role. It checks names, labels and times as the API does.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from daemon.fleet.kubernetes_client import KubernetesSettings
from tests.fleet.etcd_server import Certificates

Json = dict[str, Any]
_PATH = re.compile(r"/(?:api/v1|apis/coordination\.k8s\.io/v1)/namespaces/([^/]+)/(leases|configmaps)(?:/([^/]+))?")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"(?=.{0,63}$)([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_NOTE = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_REASONS = {404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid", 401: "Unauthorized", 403: "Forbidden"}


class ApiError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> Json:
        reason = _REASONS.get(self.code, "InternalError")
        return {"kind": "Status", "status": "Failure", "message": str(self), "reason": reason, "code": self.code}


@dataclass
class Event:
    version: int
    kind: str
    type: str
    object: Json


@dataclass
class Engine:
    """Attributes:
    compacted: watches and pages from an earlier version get 410.
    used: verbs of each kind that were asked for.
    """

    objects: dict[tuple[str, str], Json] = field(default_factory=dict)  # by kind and name
    events: list[Event] = field(default_factory=list)
    version: int = 100
    compacted: int = 0
    used: set[tuple[str, str]] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def create(self, kind: str, body: Json) -> Json:
        with self.changed:
            key = (kind, body["metadata"].get("name", ""))
            if key in self.objects:
                raise ApiError(409, f'{kind} "{key[1]}" already exists')
            made = deepcopy(body)
            made["metadata"] |= {"uid": str(uuid4()), "creationTimestamp": "2030-01-01T00:00:00Z"}
            return self._write(key, made, "ADDED")

    def get(self, kind: str, name: str) -> Json:
        with self.changed:
            if (kind, name) not in self.objects:
                raise ApiError(404, f'{kind} "{name}" not found')
            return self.objects[kind, name]

    def patch(self, kind: str, name: str, changes: Json) -> Json:
        with self.changed:
            before = self.get(kind, name)
            asked = changes.get("metadata", {})
            self._compare(kind, before, {key: asked[key] for key in ("uid", "resourceVersion") if key in asked})
            merged: Json = _merged(before, changes)
            return before if merged == before else self._write((kind, name), merged, "MODIFIED")

    def delete(self, kind: str, name: str, conditions: Json) -> Json:
        with self.changed:
            before = self.get(kind, name)
            self._compare(kind, before, conditions)
            del self.objects[kind, name]
            self._note(kind, "DELETED", before)
            return before

    def rows(self, kind: str, labels: Mapping[str, str]) -> list[Json]:
        return [found for (of, _), found in sorted(self.objects.items()) if of == kind and _has(found, labels)]

    def compact(self) -> None:
        """Forget all changes so far, as an API server does after some minutes."""
        with self.changed:
            self.version += 1
            self.compacted = self.version
            self.events.clear()
            self.changed.notify_all()

    def since(self, kind: str, version: int) -> list[Event]:
        if version < self.compacted:
            raise ApiError(410, f"too old resource version: {version} ({self.compacted})")
        return [event for event in self.events if event.version > version and event.kind == kind]

    def _compare(self, kind: str, found: Json, conditions: Json) -> None:
        for key, wanted in conditions.items():
            if found["metadata"][key] != wanted:
                name = found["metadata"]["name"]
                raise ApiError(409, f'Operation cannot be fulfilled on {kind} "{name}": {key} is another')

    def _write(self, key: tuple[str, str], made: Json, type: str) -> Json:
        _check(key[0], made)
        made = {**made, "metadata": {**made["metadata"], "resourceVersion": str(self.version + 1)}}
        self.objects[key] = made
        self._note(key[0], type, made)
        return made

    def _note(self, kind: str, type: str, found: Json) -> None:
        self.version += 1
        shown = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.version)}}
        self.events.append(Event(self.version, kind, type, shown))
        self.changed.notify_all()


class KubernetesServer:
    """Attributes:
    token: the one that it accepts; None: all.
    forbidden: verbs of kinds that the role does not have.
    silent: set: it does not answer.
    failing: a status for all requests.
    """

    def __init__(self, certificates: Certificates | None = None) -> None:
        self.engine = Engine()
        self.token: str | None = None
        self.forbidden: set[tuple[str, str]] = set()
        self.silent, self.ending = threading.Event(), threading.Event()
        self.failing: int | None = None
        self._ca = certificates.ca if certificates else None
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificates.server)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def settings(self, namespace: str, token_file: Path | None = None, limit_s: float = 10.0) -> KubernetesSettings:
        port = int(self._server.server_address[1])
        return KubernetesSettings("127.0.0.1", port, namespace, self._ca, token_file, limit_s)

    def close(self) -> None:
        self.ending.set()
        self.silent.clear()
        with self.engine.changed:
            self.engine.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128
    owner: KubernetesServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is no fault of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, -1
    server: _Server

    def _serve(self) -> None:
        owner, engine = self.server.owner, self.server.owner.engine
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        while owner.silent.is_set() and not owner.ending.wait(0.02):
            """It hangs."""
        try:
            if owner.failing is not None:
                raise ApiError(owner.failing, "the server is about to end")
            if owner.token is not None and self.headers.get("Authorization") != f"Bearer {owner.token}":
                raise ApiError(401, "Unauthorized")
            parts = urlsplit(self.path)
            found = _PATH.fullmatch(parts.path)
            if found is None:
                raise ApiError(404, "the server could not find the requested resource")
            kind, name = found[2], unquote(found[3] or "")
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            verb = self._verb(name, query)
            if (verb, kind) in owner.forbidden:
                raise ApiError(403, f'{kind} is forbidden: User "lookout" cannot {verb} resource "{kind}"')
            engine.used.add((verb, kind))
            body = json.loads(content) if content else {}
            if verb == "watch":
                self._watch(kind, query)
                return
            answer, status = self._done(verb, kind, name, body, query), 201 if verb == "create" else 200
        except ApiError as error:
            answer, status = error.status, error.code
        self._send(status, answer)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of http.server

    def _verb(self, name: str, query: Mapping[str, str]) -> str:
        if self.command == "GET":
            return "get" if name else "watch" if "watch" in query else "list"
        return {"POST": "create", "PATCH": "patch", "DELETE": "delete"}[self.command]

    def _done(self, verb: str, kind: str, name: str, body: Json, query: Mapping[str, str]) -> Json:
        engine = self.server.owner.engine
        if verb == "get":
            return engine.get(kind, name)
        if verb == "create":
            return engine.create(kind, body)
        if verb == "delete":
            return engine.delete(kind, name, body.get("preconditions", {}))
        if verb == "patch":
            if self.headers.get("Content-Type") != "application/merge-patch+json":
                raise ApiError(415, "the body of the request was in an unknown format")
            return engine.patch(kind, name, body)
        return self._page(kind, query)

    def _page(self, kind: str, query: Mapping[str, str]) -> Json:
        engine, limit = self.server.owner.engine, int(query.get("limit", 0))
        with engine.changed:
            version, start = map(int, query.get("continue", f"{engine.version}:0").split(":"))
            if version < engine.compacted:
                raise ApiError(410, "The provided continue parameter is too old")
            rows = engine.rows(kind, _labels(query))[start:]
            meta = {"resourceVersion": str(version)}
            if limit and len(rows) > limit:
                rows, meta["continue"] = rows[:limit], f"{version}:{start + limit}"
        return {"kind": "List", "metadata": meta, "items": rows}

    def _watch(self, kind: str, query: Mapping[str, str]) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        with suppress(OSError):
            for event in self._events(kind, query):
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

    def _events(self, kind: str, query: Mapping[str, str]) -> Iterator[Json]:
        owner, engine, labels = self.server.owner, self.server.owner.engine, _labels(query)
        version, until = int(query["resourceVersion"]), monotonic() + float(query.get("timeoutSeconds", 1800))
        while not owner.ending.is_set() and monotonic() < until:
            with engine.changed:
                try:
                    events = engine.since(kind, version)
                except ApiError as error:
                    yield {"type": "ERROR", "object": error.status}
                    return
                if not events:
                    engine.changed.wait(0.5)
                    continue
            version = events[-1].version
            yield from ({"type": event.type, "object": event.object} for event in events if _has(event.object, labels))
            yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}

    def _send(self, status: int, answer: Json) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _merged(value: Any, changes: Any) -> Any:
    """JSON merge patch."""
    if not isinstance(changes, dict):
        return changes
    merged = dict(value) if isinstance(value, dict) else {}
    for key, change in changes.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), change)
    return merged


def _labels(query: Mapping[str, str]) -> dict[str, str]:
    return dict(row.split("=") for row in query.get("labelSelector", "").split(",") if row)


def _has(found: Json, labels: Mapping[str, str]) -> bool:
    own = found["metadata"].get("labels", {})
    return all(own.get(name) == value for name, value in labels.items())


def _check(kind: str, made: Json) -> None:
    """Refuse what the API would refuse."""
    meta, spec = made["metadata"], made.get("spec", {})
    notes, data = meta.get("annotations", {}), made.get("data", {})
    is_right = _NAME.fullmatch(meta["name"]) and all(map(_NOTE.fullmatch, [*notes, *meta.get("labels", {})]))
    is_right = is_right and all(map(_LABEL.fullmatch, meta.get("labels", {}).values()))
    is_right = is_right and all(isinstance(text, str) for text in [*notes.values(), *data.values()])
    is_right = is_right and sum(map(len, notes.values())) <= 1 << 18 and all(map(_KEY.fullmatch, data))
    is_right = is_right and sum(map(len, data.values())) <= 1 << 20
    if kind == "leases":
        times = [spec[key] for key in ("renewTime", "acquireTime") if key in spec]
        is_right = is_right and all(map(_MICRO_TIME.fullmatch, times)) and spec.get("holderIdentity") != ""
        is_right = is_right and spec.get("leaseDurationSeconds", 1) > 0 and not data
    if not is_right:
        raise ApiError(422, f'{kind} "{meta["name"]}" is invalid')
