"""Credentials never show."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.redact import Secret, Url, redact_url, scrub


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rtsp://cam/1", "rtsp://cam/1"),
        ("rtsp://me:pw@cam:554/1?x=1", "rtsp://***@cam:554/1?x=1"),
        ("rtsp://me:p@ss/w@rd@cam/1", "rtsp://***@cam/1"),
        ("rtsp://me:@w?rd@cam/1", "rtsp://***@cam/1"),
        ("http://cam/v?user=me&password=pw&channel=2", "http://cam/v?user=***&password=***&channel=2"),
        ("clips/me@home.mp4", "clips/me@home.mp4"),
    ],
)
def test_what_is_shown(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@settings(max_examples=500)
@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=20))
def test_no_password_survives(password: str) -> None:
    """Whatever characters it is made of, escaped or not."""
    url = f"rtsp://admin:{password}@cam.example/stream"
    assert password not in redact_url(url)
    assert password not in f"{Url(url)} {Url(url)!r}"


def test_a_secret_shows_nothing() -> None:
    assert "hunter2" not in f"{Secret('hunter2')} {Secret('hunter2')!r}"


def test_scrub_cleans_what_libraries_say() -> None:
    assert scrub("failed: 'rtsp://me:pw@cam/1' refused") == "failed: 'rtsp://***@cam/1' refused"
