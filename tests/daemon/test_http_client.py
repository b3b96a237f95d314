"""Promises of the HTTP client: one deadline for a whole call, whatever the server does, and an end at once."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPException, IncompleteRead
from time import monotonic
from typing import Any

import pytest

from daemon.system.http_client import HttpAnswer, HttpClient, HttpConnection, HttpRequest, Reach, SocketAddress, fetch

HEAD = b"HTTP/1.1 200 OK\r\nX-Kind: one\r\n"
ASK = HttpRequest("GET", "/x")
LONG_S = 500.0  # a test that waits so long has failed
Answer = Callable[["Server", socket.socket], None]


class Server:
    """Answers each request by a function, which gets the connection.

    Attributes:
        requests: so many have come.
        asked: set by each request.
        ending: the server is about to end.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer, self.requests = answer, 0
        self.asked, self.ending = threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = ("127.0.0.1", int(self._listening.getsockname()[1]))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listening.accept()[:1], daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with suppress(OSError), end:
            while end.recv(65536):
                self.requests += 1
                self.asked.set()
                self._answer(self, end)

    def close(self) -> None:
        self.ending.set()
        self._listening.close()

    def trickle(self, end: socket.socket, text: bytes) -> None:
        """Send a text again and again, a byte each time, so that no read ever waits long."""
        while True:
            for byte in text:
                end.sendall(bytes([byte]))
                if self.ending.wait(0.01):
                    return


@contextmanager
def served(answer: Answer) -> Iterator[Server]:
    server = Server(answer)
    try:
        yield server
    finally:
        server.close()


def asked(address: tuple[str, int], limit_s: float, request: HttpRequest = ASK) -> HttpAnswer:
    connection = HttpConnection(address, None)
    try:
        return connection.exchange(request, monotonic() + limit_s)
    finally:
        connection.close()


def full(server: Server, end: socket.socket) -> None:
    content = str(server.requests).encode()
    end.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)


def silent(server: Server, _: socket.socket) -> None:
    server.ending.wait()


def slow_head(server: Server, end: socket.socket) -> None:
    end.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    server.trickle(end, b"x")


def slow_content(server: Server, end: socket.socket) -> None:
    end.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
    server.trickle(end, b"x")


def slow_chunks(server: Server, end: socket.socket) -> None:
    end.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    server.trickle(end, b"1\r\nx\r\n")


@pytest.mark.parametrize("answer", [silent, slow_head, slow_content, slow_chunks])
def test_the_deadline_is_of_the_whole_call(answer: Answer) -> None:
    with served(answer) as server, pytest.raises(TimeoutError):
        asked(server.address, 0.2)


def test_a_server_that_takes_no_content_gets_no_more_time() -> None:
    with served(silent) as server, pytest.raises(TimeoutError):
        asked(server.address, 0.2, HttpRequest("POST", "/x", bytes(1 << 26)))


def test_an_answer_has_all_parts() -> None:
    with served(full) as server:
        answer = fetch("http://{}:{}".format(*server.address), ASK, LONG_S, None)
    assert answer == HttpAnswer(200, {"x-kind": "one", "content-length": "1"}, b"1")


def test_a_connection_is_kept() -> None:
    peers = set()

    def note(server: Server, end: socket.socket) -> None:
        peers.add(end.getpeername())
        full(server, end)

    with served(note) as server:
        client = HttpClient(None)
        for _ in range(3):
            client.exchange(server.address, ASK, monotonic() + LONG_S)
        client.close()
    assert len(peers) == 1


def test_a_request_over_a_kept_connection_that_was_closed_is_sent_again() -> None:
    def but_the_second(server: Server, end: socket.socket) -> None:
        if server.requests == 2:
            end.shutdown(socket.SHUT_RDWR)
        else:
            full(server, end)

    with served(but_the_second) as server:
        client = HttpClient(None)
        found = [client.exchange(server.address, ASK, monotonic() + LONG_S).content for _ in range(2)]
        client.close()
    assert found == [b"1", b"3"]


def test_a_request_over_a_new_connection_is_sent_once() -> None:
    with served(lambda _, end: end.shutdown(socket.SHUT_RDWR)) as server:
        with pytest.raises(ConnectionError):
            asked(server.address, LONG_S)
        assert server.requests == 1


def test_an_answer_that_ends_early_is_no_answer() -> None:
    def cut(_: Server, end: socket.socket) -> None:
        end.sendall(HEAD + b"Content-Length: 10\r\n\r\n12345")
        end.shutdown(socket.SHUT_RDWR)

    with served(cut) as server, pytest.raises(IncompleteRead):
        asked(server.address, LONG_S)


def test_a_client_that_closes_ends_calls_that_hang() -> None:
    with served(silent) as server, ThreadPoolExecutor(1) as threads:
        client = HttpClient(None)
        hanging = threads.submit(client.exchange, server.address, ASK, monotonic() + LONG_S)
        server.asked.wait()
        client.close()
        with pytest.raises(ConnectionError):
            hanging.result()


def test_a_stream_that_hangs_is_interrupted() -> None:
    def begin(server: Server, end: socket.socket) -> None:
        end.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        server.ending.wait()

    with served(begin) as server, ThreadPoolExecutor(1) as threads:
        connection = HttpConnection(server.address, None)
        answer = connection.stream(ASK, monotonic() + LONG_S, LONG_S)
        assert answer.readline() == b"one\n"
        hanging = threads.submit(answer.readline)
        connection.interrupt()
        with suppress(IncompleteRead):
            assert hanging.result() == b""
        connection.close()


def test_a_stream_may_last_longer_than_its_head() -> None:
    def begin(server: Server, end: socket.socket) -> None:
        end.sendall(HEAD + b"\r\n")
        for _ in range(30):
            end.sendall(b"x\n")
            server.ending.wait(0.02)
        server.ending.wait()

    with served(begin) as server:
        connection = HttpConnection(server.address, None)
        answer = connection.stream(ASK, monotonic() + 0.5, LONG_S)
        assert [answer.readline() for _ in range(30)] == [b"x\n"] * 30
        connection.close()


def test_a_stream_that_is_silent_for_too_long_ends() -> None:
    def begin(server: Server, end: socket.socket) -> None:
        end.sendall(HEAD + b"\r\n")
        server.ending.wait()

    with served(begin) as server:
        connection = HttpConnection(server.address, None)
        answer = connection.stream(ASK, monotonic() + LONG_S, 0.2)
        with pytest.raises(TimeoutError):
            answer.readline()
        connection.close()


def test_the_next_address_of_a_name_has_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a machine whose IPv6 leads nowhere."""
    with served(full) as server, socket.socket() as dead, socket.socket() as filling:
        dead.bind(("127.0.0.2", server.address[1]))
        dead.listen(0)
        filling.connect(dead.getsockname())
        rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", server.address[1])) for n in (2, 1)]
        found = socket.getaddrinfo

        def resolved(host: str, *args: Any, **kwargs: Any) -> Any:
            return rows if host == "camera" else found(host, *args, **kwargs)

        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        answer = asked(("camera", server.address[1]), 3)
    assert answer.content == b"1"


def test_a_caller_looks_up_names_and_is_told_how_long_it_may() -> None:
    lookups: list[tuple[str, int, float]] = []

    def lookup(host: str, port: int, left_s: float) -> list[SocketAddress]:
        lookups.append((host, port, left_s))
        return [(socket.AF_INET, server.address)]

    with served(full) as server:
        connection = HttpConnection(("camera.example", 80), None, Reach(lookup))
        answer = connection.exchange(ASK, monotonic() + LONG_S)
        connection.close()
    assert answer.content == b"1"
    ((host, port, left_s),) = lookups
    assert (host, port) == ("camera.example", 80)
    assert 0 < left_s <= LONG_S


def endless_head(server: Server, end: socket.socket) -> None:
    end.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while not server.ending.is_set():
        end.sendall(b"x" * 60_000 + b"\r\nX: ")


def endless_interim(server: Server, end: socket.socket) -> None:
    while not server.ending.is_set():
        end.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def endless_content(server: Server, end: socket.socket) -> None:
    end.sendall(HEAD + b"Content-Length: 1000000000\r\n\r\n")
    while not server.ending.is_set():
        end.sendall(bytes(65536))


@pytest.mark.parametrize("answer", [endless_head, endless_interim])
def test_a_head_has_no_more_bytes_than_the_caller_takes(answer: Answer) -> None:
    with served(answer) as server:
        connection = HttpConnection(server.address, None, Reach(answer_bytes=1 << 16))
        with pytest.raises(HTTPException, match="65536 bytes"):
            connection.exchange(ASK, monotonic() + LONG_S)


@pytest.mark.parametrize(("answer", "limit_s"), [(endless_content, LONG_S), (slow_content, 0.2), (slow_chunks, 0.2)])
def test_a_content_that_is_too_much_leaves_the_status(answer: Answer, limit_s: float) -> None:
    with served(answer) as server:
        connection = HttpConnection(server.address, None, Reach(answer_bytes=1 << 16))
        found = connection.exchange(ASK, monotonic() + limit_s)
        assert (found.status, found.content, found.is_whole) == (200, b"", False)
        with pytest.raises(ConnectionError):  # what follows would be read as the next answer
            _ = connection.raw_socket


def test_a_request_that_may_not_be_repeated_is_sent_once() -> None:
    def first(server: Server, end: socket.socket) -> None:
        if server.requests == 1:
            full(server, end)
        else:
            end.shutdown(socket.SHUT_RDWR)

    with served(first) as server:
        connection = HttpConnection(server.address, None)
        connection.exchange(ASK, monotonic() + LONG_S)
        with pytest.raises(ConnectionError):
            connection.exchange(ASK, monotonic() + LONG_S, repeats=False)
        assert server.requests == 2


def test_a_connection_that_the_server_has_closed_meanwhile_is_dropped() -> None:
    def one_each(server: Server, end: socket.socket) -> None:
        full(server, end)
        end.shutdown(socket.SHUT_RDWR)

    with served(one_each) as server:
        connection = HttpConnection(server.address, None)
        connection.exchange(ASK, monotonic() + LONG_S)
        select.select([connection.raw_socket], [], [], LONG_S)  # the end has come
        connection.drop_stale()
        answer = connection.exchange(ASK, monotonic() + LONG_S, repeats=False)
        connection.close()
    assert answer.content == b"2"


def test_a_connection_that_hangs_while_it_connects_is_interrupted() -> None:
    with socket.socket() as full_queue, socket.socket() as filling, ThreadPoolExecutor(1) as pool:
        full_queue.bind(("127.0.0.1", 0))
        full_queue.listen(0)
        filling.connect(full_queue.getsockname())
        looked_up = threading.Event()

        def lookup(*_: object) -> list[SocketAddress]:
            looked_up.set()
            return [(socket.AF_INET, full_queue.getsockname())]

        connection = HttpConnection(("camera", 80), None, Reach(lookup))
        hanging = pool.submit(connection.open, monotonic() + LONG_S)
        assert looked_up.wait(LONG_S)
        while not hanging.done():  # again, where the thread was not yet there
            connection.interrupt()
        with pytest.raises(ConnectionError):
            hanging.result()


def test_an_answer_that_comes_before_the_whole_request_counts() -> None:
    """Such as 413 of a server that has seen the length alone, and closes."""

    def refuse(_: Server, end: socket.socket) -> None:
        end.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
        end.close()  # with content unread: the client's next bytes are answered by a reset

    with served(refuse) as server:
        connection = HttpConnection(server.address, None)
        for _ in range(2):
            answer = connection.exchange(HttpRequest("POST", "/x", bytes(1 << 26)), monotonic() + LONG_S, repeats=False)
            assert (answer.status, answer.content) == (413, b"too large")


def test_a_handshake_that_hangs_is_interrupted() -> None:
    with served(silent) as server, ThreadPoolExecutor(1) as pool:
        connection = HttpConnection(server.address, ssl.create_default_context())
        hanging = pool.submit(connection.open, monotonic() + LONG_S)
        assert server.asked.wait(LONG_S)  # the handshake has begun
        connection.interrupt()
        with pytest.raises((ConnectionError, ssl.SSLError)):
            hanging.result()
