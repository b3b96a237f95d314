"""Where traces go: the configuration, and OpenTelemetry's variables beside it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from daemon.config.load import parse
from daemon.config.otlp import OtlpConfig
from daemon.errors import ConfigError
from daemon.redact import Url
from daemon.tracing.settings import Settings, settings_of
from daemon.tracing.spans import request_of

CONFIG = "model: {path: m.onnx}\nsources: [{id: s, type: synthetic}]\n"
BASE, OF_TRACES = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


def found(
    endpoint: str | None = None, environment: dict[str, str] | None = None, headers_file: Path | None = None
) -> Settings:
    config = OtlpConfig(endpoint=Url(endpoint) if endpoint else None, headers_file=headers_file)
    made = settings_of(config, environment or {}, "run-1")
    assert made
    return made


@pytest.mark.parametrize(
    ("endpoint", "environment", "address", "path"),
    [
        ("http://a:4318", {}, ("a", 4318), "/v1/traces"),
        ("http://a", {}, ("a", 80), "/v1/traces"),
        ("https://a/", {}, ("a", 443), "/v1/traces"),
        ("http://[::1]:4318/otlp", {}, ("::1", 4318), "/otlp/v1/traces"),
        ("http://a:4318/v1/traces", {}, ("a", 4318), "/v1/traces"),
        ("http://a:4318", {BASE: "http://b:1", OF_TRACES: "http://c:1"}, ("a", 4318), "/v1/traces"),
        (None, {BASE: "http://b:1/"}, ("b", 1), "/v1/traces"),
        (None, {BASE: " http://b:1/x "}, ("b", 1), "/x/v1/traces"),
        (None, {BASE: "http://b:1", OF_TRACES: "http://c:2/own"}, ("c", 2), "/own"),
        (None, {BASE: "http://b:1", OF_TRACES: "http://c:2"}, ("c", 2), "/"),
        (None, {BASE: "http://b:1", OF_TRACES: ""}, ("b", 1), "/v1/traces"),
    ],
)
def test_the_configuration_goes_before_the_environment(
    endpoint: str | None, environment: dict[str, str], address: tuple[str, int], path: str
) -> None:
    """The endpoint of traces is taken as it is; to the other one a path is added."""
    made = found(endpoint, environment)
    assert (made.address, made.path) == (address, path)


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("http://user:hunter2@a:4318", "has a user name"),
        ("http://hunter2@a:4318", "has a user name"),
        ("ftp://a", "is none of http"),
        ("a:4318", "is none of http"),
        ("http://", "is none of http"),
        ("http://a:99999", "is none of http"),
        ("http://a b", "is none of http"),
        ("http://ä.example", "is none of http"),
        ("http://a/?key=hunter2", "has a query"),
        ("http://a/#x", "has a query"),
    ],
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str, reason: str) -> None:
    """And nobody sees a password that it has."""
    with pytest.raises(ConfigError, match=f"^otlp.endpoint: .*{reason}") as error:
        parse(f"{CONFIG}otlp: {{endpoint: {endpoint!r}}}")
    assert "hunter2" not in str(error.value)
    for name in (BASE, OF_TRACES):
        with pytest.raises(ConfigError, match=f"^{name}: .*{reason}") as error:
            found(None, {name: endpoint})
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("endpoint", "more", "works"),
    [
        ("http://a:4318", "", False),
        ("http://10.0.0.9:4318", "", False),
        ("http://a:4318", ", allow_plaintext: true", True),
        ("https://a:4318", "", True),
        ("http://127.0.0.1:4318", "", True),
        ("http://[::1]:4318", "", True),
        ("http://localhost:4318", "", True),
    ],
)
def test_headers_stay_on_this_machine_without_tls(tmp_path: Path, endpoint: str, more: str, works: bool) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: hunter2\n")
    file.chmod(0o600)
    refused = nullcontext() if works else pytest.raises(ConfigError, match=r"on the way .*otlp\.allow_plaintext: true")
    with refused:
        parse(f"{CONFIG}otlp: {{endpoint: '{endpoint}', headers_file: {file}{more}}}")
    for own, environment in (
        (f"headers_file: {file}", {BASE: endpoint}),
        ("every: 1", {BASE: endpoint, "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=hunter2"}),
    ):
        config = parse(f"{CONFIG}otlp: {{{own}{more}}}").otlp
        with refused:
            assert settings_of(config, environment, "run-1")


@pytest.mark.parametrize("wrong", ["protocol: grpc", "every: 0", "every: -1", "slow_ms: 0", "endpoint: ''"])
def test_keys_that_mean_nothing_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="otlp"):
        parse(f"{CONFIG}otlp: {{{wrong}}}")


def test_settings_without_an_endpoint_are_a_mistake() -> None:
    with pytest.raises(
        ConfigError, match=r"^otlp: has no endpoint: set otlp\.endpoint, or OTEL_EXPORTER_OTLP_ENDPOINT"
    ):
        found()


@pytest.mark.parametrize(("value", "works"), [("true", False), ("TRUE", False), ("1", True), ("", True), ("no", True)])
def test_the_environment_can_turn_it_off(value: str, works: bool) -> None:
    """By the word that the specification has."""
    made = settings_of(OtlpConfig(endpoint=Url("http://a")), {"OTEL_SDK_DISABLED": value}, "run-1")
    assert (made is not None) == works


@pytest.mark.parametrize(
    ("written", "headers"),
    [
        ("Authorization=Bearer%20abc,X-Id=7", {"Authorization": "Bearer abc", "X-Id": "7"}),
        (" a = b , , c=d=e ", {"a": "b", "c": "d=e"}),
        ("a=%E4%B8", {}),  # no UTF-8
        ("a=b,c", {}),
        ("a=b%0d%0aEvil: 1", {}),
        ("a b=c", {}),
        ("Content-Length=5", {}),
        ("Host=other", {}),
    ],
)
def test_headers_of_the_environment(written: str, headers: dict[str, str]) -> None:
    """One mistake makes all of them void."""
    assert found("https://a", {"OTEL_EXPORTER_OTLP_HEADERS": written}).headers == headers
    both = {"OTEL_EXPORTER_OTLP_HEADERS": "x=y", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": written}
    assert found("https://a", both).headers == headers


def test_what_all_traces_say_of_the_daemon() -> None:
    resource = found("http://a").resource
    assert (resource["service.name"], resource["service.instance.id"]) == ("lookout", "run-1")
    named = "service.name=a,deployment.environment.name=hall%2C%20north,service.instance.id=pod-7"
    resource = found("http://a", {"OTEL_RESOURCE_ATTRIBUTES": named}).resource
    assert (resource["service.name"], resource["service.instance.id"]) == ("a", "pod-7")
    assert resource["deployment.environment.name"] == "hall, north"
    assert (
        found("http://a", {"OTEL_RESOURCE_ATTRIBUTES": named, "OTEL_SERVICE_NAME": "b"}).resource["service.name"] == "b"
    )
    for wrong in ("a=b,c", "a=\udcff", "=b", "a=%ff"):  # the second is a byte that is no text
        assert found("http://a", {"OTEL_RESOURCE_ATTRIBUTES": wrong}).resource == found("http://a").resource
    request_of([], found("http://a", {"OTEL_SERVICE_NAME": "a\udcff"}).resource)


def test_a_file_of_headers_goes_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer a:b\r\n# note\n\n X-Empty :\n")
    file.chmod(0o600)
    made = found("https://a", {"OTEL_EXPORTER_OTLP_HEADERS": "x=y"}, file)
    assert made.current_headers() == {"Authorization": "Bearer a:b", "X-Empty": ""}


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("a: b", 0o604, "everybody may read it: chmod o= "),
        ("a: b\nhunter2\n", 0o600, "line 2 is no header: write it as `Name: value`"),
        ("a: hunter2\0", 0o600, "line 1 is no header"),
        ("Transfer-Encoding: chunked", 0o600, "line 1 is no header"),
        ("a: b\n" * 20_000, 0o600, "has more than 64 KiB"),
    ],
)
def test_a_file_that_has_no_headers_is_refused(tmp_path: Path, text: str, mode: int, reason: str) -> None:
    file = tmp_path / "headers"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"^otlp.headers_file: .*{reason}") as error:
        found("https://a", {}, file)
    assert "hunter2" not in str(error.value)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, reason in (("pipe", "is no file"), ("gone", "No such file"), (".", "is no file")):
        with pytest.raises(ConfigError, match=f"otlp.headers_file: .*{reason}"):
            found("https://a", {}, tmp_path / name)
