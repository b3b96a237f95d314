"""What a GPU's decoder can do, asked in a process of its own: where the driver fails, PyNvVideoCodec ends the process.

python -m daemon.sources.nvdec.card DEVICE
"""

from __future__ import annotations

import base64
import subprocess
import sys

import msgspec

from daemon.sources.decoding import UnsuitableError

_PATIENCE_S = 30
# A grey picture of 256x144 in H.264: parameters and one key picture.
_KEY_PICTURE = base64.b64decode(
    "AAAAAWdCwAymEQQE7ARAAAADAEAAAAMAg8UKhGAAAAABaMhCDyyAAAABZYiCAr5MUAAQLZOTk5OTk5OTk5OTk5OTk666666666666666666666666666"
    "666666666666666666666666666666666666666666666666668A="
)
_EIGHT_BIT_420 = (None, "yuv420p", "yuvj420p", "nv12")


class Limits(msgspec.Struct, frozen=True):
    """Smallest and largest picture of a codec, width and height, pixels."""

    least: tuple[int, int]
    most: tuple[int, int]


class Card(msgspec.Struct, frozen=True):
    """One GPU's decoder.

    Attributes:
        engines: that decode side by side.
        codecs: those it decodes as 8-bit 4:2:0, by FFmpeg's name.
    """

    engines: int
    codecs: dict[str, Limits]

    def why_not(self, codec: str, width: int, height: int, pixel_format: str | None) -> str | None:
        """Why such a stream cannot be decoded, None if it can. A size of 0 is not known yet."""
        limits = self.codecs.get(codec)
        if limits is None:
            return f"the GPU does not decode {codec}, but {', '.join(self.codecs) or 'nothing'}"
        if pixel_format not in _EIGHT_BIT_420:
            return f"{pixel_format}: only 8-bit 4:2:0 is taken from the GPU's decoder"
        (least_width, least_height), (most_width, most_height) = limits.least, limits.most
        if width and not (least_width <= width <= most_width and least_height <= height <= most_height):
            return (
                f"{width}x{height}: the GPU decodes {codec} from {least_width}x{least_height} to "
                f"{most_width}x{most_height}"
            )
        return None


def ask(device: int) -> Card:
    """Try the decoder of a GPU: one picture, in a process that may crash.

    Raises:
        UnsuitableError: there is none that works; says why.
    """
    command = [sys.executable, "-m", __spec__.name, str(device)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnsuitableError(f"the GPU's decoder gave no picture within {_PATIENCE_S} s") from error
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines() or [""]
    if done.returncode:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise UnsuitableError(f"the GPU's decoder failed its trial ({ended}): {lines[-1] or 'without a word'}")
    return msgspec.json.decode(lines[-1], type=Card)


def _main(device: int) -> int:
    try:
        from daemon.sources.nvdec.session import Engines
    except (ImportError, RuntimeError) as error:
        words = str(error).partition("\n")[0]
        sys.stderr.write(
            f"PyNvVideoCodec does not load: {words}; pip install 'lookoutd[gpu]', and in a container "
            "NVIDIA_DRIVER_CAPABILITIES must have video\n"
        )
        return 1
    engines = Engines(device)
    card = engines.card()
    if "h264" in card.codecs:
        session = engines.session("h264", low_latency=True, surfaces=1)
        shown = [*session.decode_bytes(_KEY_PICTURE, 0), *session.drain()]
        image = shown[0][1](False, False) if shown else None
        if image is None or (image.width, image.height) != (256, 144):
            sys.stderr.write("no picture came of a good one\n")
            return 1
        del image, shown
        session.close()
    engines.close()
    sys.stdout.write(msgspec.json.encode(card).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1])))
