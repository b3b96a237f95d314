"""A source that needs no camera: the drawn street of `scene`, with known boxes."""

from __future__ import annotations

from daemon.config.sources import SyntheticConfig
from daemon.sources.port import DecodeBudget, Picture
from daemon.sources.scene import Scene
from detectors.port import HostImage
from lookout.messages import FrameClock, VideoFormat

CLOCK = FrameClock("file", 0)


class SyntheticSource:
    """Frames 0, 1, 2 ... of a scene, endless or `frames` of them; every connection starts at frame 0."""

    plays_once = True
    live = False
    has_next = False
    clock = CLOCK

    def __init__(self, config: SyntheticConfig) -> None:
        self._config = config
        self.realtime = config.pace == "realtime"

    def open(self, budget: DecodeBudget | None = None) -> SyntheticReader:  # noqa: ARG002 - skips nothing
        return SyntheticReader(self._config)


class SyntheticReader:
    """See `daemon.sources.port.Reader`; pts is the frame number over the rate."""

    def __init__(self, config: SyntheticConfig) -> None:
        self._config = config
        self._scene = scene_of(config)
        self._number = 0
        self.format = VideoFormat("drawn", config.width, config.height, config.fps, "none")

    def read(self) -> Picture | None:
        number, config = self._number, self._config
        if config.frames is not None and number >= config.frames:
            return None
        self._number += 1
        return Picture(round(number * 1e9 / config.fps), 0, lambda: HostImage(self._scene.draw(number)))

    def close(self) -> None:
        """Nothing is held."""


def scene_of(config: SyntheticConfig) -> Scene:
    """The scene that a source of this configuration draws; it also gives the true boxes."""
    seed, objects, bands = config.seed, config.objects, config.bands
    return Scene(config.width, config.height, seed=seed, objects=objects, fps=config.fps, bands=bands)
