"""Videos of pictures with boxes: what is in the file, what is missing, and that nobody waits for it."""

from __future__ import annotations

import subprocess
import sys
import weakref
from pathlib import Path

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest

from daemon.cli import invoke
from daemon.errors import LookoutError
from daemon.pipeline.frames import Frame
from daemon.viewing.kit import Viewing, video_paths
from daemon.viewing.saved_videos import SavedVideos
from daemon.viewing.video_file import TICKS_S, VideoFile, reserve
from detectors.detections import Detections
from detectors.fake.detector import FakeLane
from detectors.port import HostImage
from tests.support.clock import ManualClock
from tests.support.daemon import DEMO_MODEL, ROOT
from tests.support.events import frame, logged, runtime

_LANE = FakeLane(0.0, 0.0, lambda _: None)
_BOX = np.array([[100, 100, 300, 300]], np.float32)
CAR = Detections(_BOX, np.array([0.9], np.float32), np.array([0], np.int32))


def _show(videos: SavedVideos, seq: int, *, source: str = "street", size: tuple[int, int] = (480, 640)) -> None:
    """What a lane does with a frame after its stages."""
    image = HostImage(np.full((*size, 3), 10 * seq % 200, np.uint8))
    videos.on_result(Frame(frame(seq, source), image), CAR, _LANE, ("car",))


def _pictures(path: Path) -> list[tuple[float, npt.NDArray[np.uint8]]]:
    """Times in seconds, and pictures."""
    with av.open(str(path)) as file:
        return [(picture.time or 0.0, picture.to_ndarray(format="bgr24")) for picture in file.decode(video=0)]


@pytest.fixture
def videos(tmp_path: Path, clock: ManualClock) -> SavedVideos:
    reserve(tmp_path / "street.mp4")
    return SavedVideos({"street": tmp_path / "street.mp4"}, runtime(clock))


def test_a_file_has_each_picture_at_its_time_with_its_box(videos: SavedVideos, tmp_path: Path) -> None:
    """Frames that were dropped before leave a pause, and are counted."""
    with logged() as lines:
        for seq in (3, 4, 5, 9, 10):
            _show(videos, seq)
            _show(videos, seq, source="another")
            videos.run_once()
        videos.stop(1.0)
    found = _pictures(tmp_path / "street.mp4")
    assert [round(at, 3) for at, _ in found] == [0.0, 0.1, 0.2, 0.6, 0.7]
    for picture in (picture for _, picture in found):
        assert picture.shape == (480, 640, 3)
        assert int(picture[200, 100, 2]) - int(picture[200, 200, 2]) > 50  # the box's edge, and what lies in it
    (line,) = lines
    assert (line["frames"], line["left_out"], line["too_slow"]) == (5, 3, 0)


def test_what_comes_faster_than_it_is_written_is_left_out_and_counted(videos: SavedVideos, tmp_path: Path) -> None:
    """A lane waits for nothing."""
    with logged() as lines:
        for seq in range(40):
            _show(videos, seq)
        videos.run_once()
        _show(videos, 40)
        videos.run_once()
        videos.stop(1.0)
    kept = len(_pictures(tmp_path / "street.mp4"))
    (line,) = lines
    assert line["frames"] == kept < 40
    assert line["too_slow"] == line["left_out"] == 41 - kept


def test_a_picture_that_waits_keeps_no_memory_of_its_capture(videos: SavedVideos) -> None:
    """A capture process lends few pictures: an encoder that is slow costs no frame of detection."""
    pixels = np.zeros((480, 640, 3), np.uint8)
    lent = weakref.ref(pixels)
    videos.on_result(Frame(frame(0), HostImage(pixels)), CAR, _LANE, ("car",))
    del pixels
    assert lent() is None
    videos.run_once()
    videos.stop(1.0)


def test_another_size_is_brought_to_that_of_the_first(videos: SavedVideos, tmp_path: Path) -> None:
    for seq, size in enumerate([(481, 641), (720, 1280), (480, 640)]):
        _show(videos, seq, size=size)
    videos.run_once()
    videos.stop(1.0)
    assert {picture.shape for _, picture in _pictures(tmp_path / "street.mp4")} == {(480, 640, 3)}


def test_a_file_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    """As after a power cut."""
    path = tmp_path / "cut.mp4"
    file = VideoFile(path)
    for number in range(200):
        file.add(np.full((90, 160, 3), number, np.uint8), number * TICKS_S // 15)
    assert len(_pictures(path)) >= 60
    file.close()
    assert len(_pictures(path)) == 200


def test_a_disk_that_is_full_ends_the_video_alone(clock: ManualClock, tmp_path: Path) -> None:
    """All else goes on; the log says why, once."""
    (tmp_path / "full.mp4").symlink_to("/dev/full")
    videos = SavedVideos({"street": tmp_path / "full.mp4"}, runtime(clock))
    with logged() as lines:
        for seq in range(3):
            _show(videos, seq)
            videos.run_once()
        videos.stop(1.0)
    last = [line for line in lines if line["log_level"] == "error"][-1]
    assert last["event"] == "a video is not whole"
    assert last["frames"] + last["left_out"] == 3


def test_a_source_without_a_frame_leaves_no_file(videos: SavedVideos, tmp_path: Path) -> None:
    with logged() as lines:
        videos.stop(1.0)
    assert [line["event"] for line in lines] == ["no video: no frame was looked at"]
    assert [*tmp_path.iterdir()] == []


def test_each_source_has_its_file(tmp_path: Path) -> None:
    assert video_paths(["door"], tmp_path / "a.mp4") == {"door": tmp_path / "a.mp4"}
    several = video_paths(["door", "yard"], tmp_path / "a.mp4")
    assert several == {"door": tmp_path / "a-door.mp4", "yard": tmp_path / "a-yard.mp4"}
    (tmp_path / "a-yard.mp4").write_text("mine")
    with pytest.raises(LookoutError, match=r"a-yard\.mp4 already exists: choose another name"):
        Viewing(["door", "yard"], tmp_path / "a.mp4", show=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a-yard.mp4"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--save-video", "out.avi"], "--save-video writes MP4"),
        (["--save-video", "none/out.mp4"], "the folder none does not exist"),
        (["--show"], "--show needs a display"),
        (["--confidence", "2"], "not in the range"),
    ],
)
@pytest.mark.needs("ffmpeg")
def test_what_cannot_be_is_said_before_anything_begins(
    options: list[str], says: str, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert invoke(["run", str(clip), "--model", str(DEMO_MODEL), *options]) == 2
    output = capsys.readouterr().err
    assert says in output
    assert output.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("option", [["--show"], ["--track"], ["--confidence", "0.4"], ["--save-video", "out.mp4"]])
def test_options_of_sources_want_sources(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", *option]) == 2
    assert f"{option[0]} is for sources on the command line" in capsys.readouterr().err


@pytest.mark.needs("ffmpeg")
def test_a_recording_is_run_to_its_end_and_saved(clip: Path, tmp_path: Path) -> None:
    """The picture that was written last is not kept from whom it was lent by: the run ends by itself."""
    out = tmp_path / "out.mp4"
    words = [str(clip), "--model", str(DEMO_MODEL), "--confidence", "0.4", "--save-video", str(out)]
    command = [sys.executable, "-m", "daemon", "run", *words, "--endpoint", f"ipc://{tmp_path}/messages"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    assert '"video saved"' in done.stderr
    (_, first), *_ = _pictures(out)
    assert first.shape == (180, 320, 3)
    assert cv2.absdiff(first, np.zeros_like(first)).any()
