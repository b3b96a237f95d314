"""Credentials never show."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.redact import Secret, Url, redact_url, scrub

# How makers of cameras, recorders and services have their users write a name and a password.
_MAKERS = {
    "ACTi": "rtsp://{user}:{password}@192.168.1.2:7070/stream1",
    "Amcrest": "rtsp://{user}:{password}@192.168.1.2:554/cam/realmonitor?channel=1&subtype=1",
    "Axis": "rtsp://{user}:{password}@192.168.1.2/axis-media/media.amp?videocodec=h264&resolution=640x480",
    "Axis, MJPEG": "http://{user}:{password}@192.168.1.2/axis-cgi/mjpg/video.cgi?fps=5",
    "Bosch": "rtsp://192.168.1.2/?h26x=4&line=1&inst=2&user={user}&pwd={password}",
    "D-Link": "http://{user}:{password}@192.168.1.2/video/mjpg.cgi",
    "Dahua": "rtsp://{user}:{password}@192.168.1.2:554/cam/realmonitor?channel=1&subtype=0",
    "Edimax": "rtsp://{user}:{password}@192.168.1.2/ipcam_h264.sdp",
    "Eufy": "rtsp://{user}:{password}@192.168.1.2/live0",
    "Foscam": "rtsp://{user}:{password}@192.168.1.2:88/videoMain",
    "Foscam, MJPEG": "http://192.168.1.2:88/cgi-bin/CGIStream.cgi?cmd=GetMJStream&usr={user}&pwd={password}",
    "Foscam, older": "http://192.168.1.2/videostream.cgi?user={user}&pwd={password}&resolution=32",
    "Geovision": "rtsp://{user}:{password}@192.168.1.2:8554/CH001.sdp",
    "Grandstream": "rtsp://{user}:{password}@192.168.1.2/0",
    "Hanwha": "rtsp://{user}:{password}@192.168.1.2/profile2/media.smp",
    "Hikvision": "rtsp://{user}:{password}@192.168.1.2:554/Streaming/Channels/101",
    "Hikvision, ISAPI": "http://{user}:{password}@192.168.1.2/ISAPI/Streaming/channels/102/httpPreview",
    "Instar": "http://192.168.1.2/mjpegstream.cgi?-chn=11&-usr={user}&-pwd={password}",
    "Milesight": "rtsp://{user}:{password}@192.168.1.2/main",
    "Mobotix": "http://192.168.1.2/cgi-bin/faststream.jpg?stream=full&loginuse={user}&loginpas={password}",
    "Panasonic": "rtsp://{user}:{password}@192.168.1.2/MediaInput/h264/stream_1",
    "Reolink": "rtsp://{user}:{password}@192.168.1.2:554/h264Preview_01_main",
    "Reolink, FLV": "http://192.168.1.2/flv?port=1935&app=bcs&stream=channel0_main.bcs&user={user}&password={password}",
    "Reolink, RTMP": "rtmp://192.168.1.2/bcs/channel0_main.bcs?channel=0&stream=0&user={user}&password={password}",
    "Sony": "rtsp://{user}:{password}@192.168.1.2/media/video1",
    "TP-Link": "rtsp://{user}:{password}@192.168.1.2:554/stream1",
    "Trendnet": "http://{user}:{password}@192.168.1.2/cgi/mjpg/mjpeg.cgi",
    "Ubiquiti": "rtsps://192.168.1.2:7441/{password}?enableSrtp",
    "Uniview": "rtsp://{user}:{password}@192.168.1.2/media/video1",
    "Vacron": "rtsp://192.168.1.2:554/0/{user}:{password}/main",
    "Vivotek": "rtsp://{user}:{password}@192.168.1.2/live.sdp",
    "Vstarcam": "http://192.168.1.2:81/livestream.cgi?user={user}&pwd={password}&streamid=0",
    "XM and its kin": "rtsp://192.168.1.2:554/user={user}&password={password}&channel=1&stream=0.sdp?real_stream",
    "XM, underscores": "rtsp://192.168.1.2:554/user={user}_password={password}_channel=1_stream=0.sdp?real_stream",
    "Zmodo": "rtsp://192.168.1.2:10554/tcp/av0_0?psw={password}",
    "a token": "https://192.168.1.2/live/index.m3u8?token={password}",
    "a signature": "https://192.168.1.2/live/index.m3u8?Policy=x&Signature={password}&Key-Pair-Id=y",
    "a fragment": "https://192.168.1.2/live/index.m3u8#access_token={password}",
    "a key to publish": "rtmp://live.example/app/{password}",
    "SRT": "srt://192.168.1.2:9000?passphrase={password}&pbkeylen=16",
}
_SENTENCE = "cannot open {}: refused"
_PASSWORDS = st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=20)
# What is letters and then a number, or begins with a codec, reads like the name of a stream.
_KEYS = st.text(alphabet="abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789", min_size=8, max_size=24).filter(
    lambda key: re.search(r"\d[A-Za-z]", key) and not re.match(r"h26|mp|\d+[xpiTt]", key)
)
_PATHS = ("Ubiquiti",)  # whose key is a part of the path: random, and long


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rtsp://cam/1", "rtsp://cam/1"),
        ("rtsp://me:pw@cam:554/1?channel=1", "rtsp://***@cam:554/1?channel=1"),
        ("rtsp://me:p@ss/w@rd@cam/1", "rtsp://***@cam/1"),
        ("rtsp://me:@w?rd@cam/1", "rtsp://***@cam/1"),
        ("rtsp://cam/live@1", "rtsp://***"),
        ("http://cam/v?user=me&password=pw&channel=2", "http://cam/v?user=***&password=***&channel=2"),
        ("http://cam/v?password=a&b=c&channel=2", "http://cam/v?password=***&***&channel=2"),
        ("rtsp://cam/user=admin&password=pw&channel=1.sdp", "rtsp://cam/***"),
        ("rtsp://[fe80::1%eth0]:554/h264Preview_01_main", "rtsp://[fe80::1%eth0]:554/h264Preview_01_main"),
        ("http://host/recordings/2026-11-23/door.mp4", "http://host/recordings/2026-11-23/door.mp4"),
        ("clips/me@home.mp4", "clips/me@home.mp4"),
        ("rtsp://cam/live/Zk3v9QpL", "rtsp://cam/live/***"),
        ("https://cam/hls/9f86d081/index.m3u8", "https://cam/hls/***"),
        ("rtsps://cam:7441/kqzvbtmqrlwyshdfkqzvb?enableSrtp", "rtsps://cam:7441/***?***"),
        ("http://cam/v?channel=s3cr3tT0ken&stream=2", "http://cam/v?channel=***&stream=2"),
        (
            "http://cam/v.cgi?resolution=1920x1080&profile=1080p25",
            "http://cam/v.cgi?resolution=1920x1080&profile=1080p25",
        ),
        ("rtsp://nvr/20261123T101500Z/STREAMING2", "rtsp://nvr/20261123T101500Z/STREAMING2"),
    ],
)
def test_what_is_shown(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@pytest.mark.share(3)
@pytest.mark.parametrize("maker", _MAKERS)
@settings(max_examples=100)
@given(data=st.data())
def test_no_part_of_a_password_survives(maker: str, data: st.DataObject) -> None:
    """Whatever signs it is made of, escaped or not, and wherever the maker has it."""
    password = data.draw(_KEYS if maker in _PATHS else _PASSWORDS)
    if "={password}" in _MAKERS[maker]:  # where these end it, and what follows is not the password
        password = password.translate(str.maketrans("&;", "+-"))
    url = _MAKERS[maker].format(user="Root7", password=password)
    shown = f"{Url(url)} {Url(url)!r} {scrub(_SENTENCE.format(url))}"
    parts = {password[start : start + 4] for start in range(len(password) - 3)}
    assert not [part for part in parts if part in shown and part not in _MAKERS[maker] + _SENTENCE]
    assert "Root7" not in shown


def test_a_secret_shows_nothing() -> None:
    assert "hunter2" not in f"{Secret('hunter2')} {Secret('hunter2')!r}"


def test_scrub_cleans_what_libraries_say() -> None:
    assert scrub("failed: 'rtsp://me:pw@cam/1' refused") == "failed: 'rtsp://***@cam/1' refused"
    assert scrub("see http://cam/a?token=x.") == "see http://cam/a?token=***."
