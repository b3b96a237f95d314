"""What opening decoder sessions costs, and what a process that decodes meanwhile sees of it.

    python -m tests.gpu.opening CLIP ... [--only calls forms ways beside] [--opener 1]

CLIP is H.264 or HEVC. `calls`: the time of each call of the driver while sessions open as the daemon opens them.
`forms`: decoders of various numbers of surfaces, their memory, and changing one instead of opening it. `ways`: threads
and processes at once. `beside`: processes decode in time, and another opens sessions, memory and contexts, on the same
GPU or on --opener; a row says how late pictures were, and which calls waited.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ctypes import byref, c_void_p
from pathlib import Path
from select import select
from time import perf_counter, perf_counter_ns, process_time, sleep
from typing import Any

import av
import numpy as np
from av.packet import Packet

from daemon.sources.bitstream import Bitstream
from daemon.sources.nvdec import nvcuvid
from daemon.sources.nvdec.nvcuvid_structs import ChangeParameters, DecoderParameters, ShortArea
from daemon.sources.nvdec.session import Engines, NvdecSession
from detectors import cuda
from detectors.cuda import DeviceBuffer, Event, SharedBuffer, Stream

_SURFACES = 5  # of each source of a live daemon with one model
_FPS = 30.0
_PICTURE_BYTES = _SURFACES * 3 * 1920 * 1080 // 2
_PARTS = ("calls", "forms", "ways", "beside")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("clips", type=Path, nargs="+")
    parser.add_argument("--only", nargs="+", default=_PARTS, choices=_PARTS)
    parser.add_argument("--sessions", type=int, default=48, help="for ways")
    parser.add_argument("--decoding", type=int, default=60, help="sessions that decode in time beside the opener")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each row of beside")
    parser.add_argument("--opener", type=int, default=0, help="GPU on which sessions are opened beside")
    parser.add_argument("--work", type=int, default=256, help="MiB that a lane's stand-in copies eight times")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return _CHILDREN[args.child[0]](args.clips[0], *args.child[1:])
    if "calls" in args.only:
        for clip in args.clips:
            _calls(clip)
    if "forms" in args.only:
        _forms()
    if "ways" in args.only:
        _ways(args.clips[0], args.sessions)
    if "beside" in args.only:
        _beside(args.clips[0], args)
    return 0


class Timed:
    """A library whose calls are timed, without the calls that they make themselves."""

    def __init__(self, library: Any, note: Callable[[str, int, int], None]) -> None:
        self._of, self._note = library, note

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not ((name.startswith("cu") and name[2:3].isupper()) or name.startswith("cuvid")):
            return found

        def timed(*arguments: Any) -> Any:
            _nested.append(0)
            begun = perf_counter_ns()
            try:
                return found(*arguments)
            finally:
                took = perf_counter_ns() - begun
                own = took - _nested.pop()
                if _nested:
                    _nested[-1] += took
                self._note(name, begun, own)

        setattr(self, name, timed)
        return timed


_nested: list[int] = []  # ns of the calls within each call; the processes that time have one thread
Rows = list[tuple[str, int, int]]
"""Name of a call, when it began, and its duration, ns."""


def _timed() -> Rows:
    """From now on all calls of the driver are noted here."""
    rows: Rows = []

    def note(name: str, begun: int, took: int) -> None:
        rows.append((name, begun, took))

    library: Any = Timed(nvcuvid._library(), note)
    nvcuvid._library = lambda: library  # type: ignore[assignment]
    cuda.driver = Timed(cuda.driver, note)  # type: ignore[attr-defined]
    cuda._hot = Timed(cuda._hot, note)  # type: ignore[assignment]
    return rows


def _packets(clip: Path) -> tuple[str, list[Packet[Any]]]:
    with av.open(str(clip)) as container:
        stream = container.streams.video[0]
        codec = stream.codec_context.name
        bitstream = Bitstream(codec, stream.codec_context.extradata)
        found = []
        for packet in container.demux(stream):
            if packet.size and bitstream.has_lengths:
                found.append(Packet(bytes(bitstream.to_annex_b(memoryview(packet), key=packet.is_keyframe))))
            elif packet.size:
                found.append(Packet(bytes(packet)))
    return codec, found


def _first_picture(session: NvdecSession, packets: list[Packet[Any]]) -> None:
    """Decode until a picture has been brought out."""
    for packet in packets:
        for load, _ in session.decode(packet.buffer_ptr, packet.buffer_size, None):
            load(True, False)
            return


def _opened(engines: Engines, codec: str, packets: list[Packet[Any]]) -> NvdecSession:
    session = engines.session(codec, low_latency=True, surfaces=_SURFACES)
    _first_picture(session, packets)
    return session


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# --- each call -----------------------------------------------------------------------------------------------------


def _calls(clip: Path, count: int = 12) -> None:
    """In a process of its own: what is timed stays so."""
    found = json.loads(_child(clip, "calls", str(count)))
    _write(f"\n{clip.name}: {count} sessions of one process, one after the other; ms of a session in each call")
    _write(f"{'call':32}{'calls':>7}{'first':>9}{'mean':>9}{'median':>9}{'max':>9}")
    for name, row in sorted(found.items(), key=lambda item: -sum(item[1]["ms"])):
        ms = row["ms"]
        if max(ms) >= 0.05:
            later = ms[1:]
            _write(
                f"{name:32}{row['calls']:7.1f}{ms[0]:9.2f}{np.mean(later):9.2f}{np.median(later):9.2f}{max(later):9.2f}"
            )


def _child_calls(clip: Path, count: str) -> int:
    codec, packets = _packets(clip)
    begun = perf_counter()
    engines = Engines(0, shared=True)
    context_s = perf_counter() - begun
    rows = _timed()
    table: dict[str, list[float]] = defaultdict(lambda: [0.0] * int(count))
    calls: dict[str, int] = defaultdict(int)
    sessions, memory = [], []
    for number in range(int(count)):
        rows.clear()
        memory.append(engines.device.free_memory())
        rows.clear()
        begun = perf_counter()
        sessions.append(_opened(engines, codec, packets))
        table["all of it"][number] = (perf_counter() - begun) * 1e3
        for name, _, took in rows:
            table[name][number] += took / 1e6
            calls[name] += 1
    memory.append(engines.device.free_memory())
    for number, session in enumerate(sessions):
        begun = perf_counter()
        session.close()
        table["close"][number] = (perf_counter() - begun) * 1e3
    table["context"] = [context_s * 1e3] * int(count)
    found = {name: {"ms": ms, "calls": calls[name] / int(count)} for name, ms in table.items()}
    found["memory, MiB"] = {"ms": [-step / 2**20 for step in np.diff(memory).tolist()], "calls": 0}
    _write(json.dumps(found))
    return 0


# --- forms of a decoder ---------------------------------------------------------------------------------------------


def _wanted(codec: str, surfaces: int, **more: int) -> DecoderParameters:
    width, height = more.pop("width", 1920), more.pop("height", 1080)
    fields = {"width_max": width, "height_max": height, "mapped": 3, "flags": 4} | more
    return DecoderParameters(
        width=width,
        height=height,
        surfaces=surfaces,
        codec=nvcuvid.CODECS[codec],
        chroma=1,
        area=ShortArea(0, 0, width, height),
        deinterlace=0,
        target_width=width,
        target_height=height,
        **fields,
    )


def _forms(count: int = 6) -> None:
    engines, library = Engines(0), nvcuvid._library()
    forms: dict[str, DecoderParameters] = {}
    for codec, numbers in {"hevc": (1, 4, 6, 8, 12, 16, 20), "h264": (1, 4, 5, 9, 16, 20)}.items():
        forms |= {f"{codec}, {number}+3 surfaces": _wanted(codec, number) for number in numbers}
    forms |= {f"hevc, 6+{mapped} surfaces": _wanted("hevc", 6, mapped=mapped) for mapped in (1, 2, 8)}
    forms["hevc, 6+3, up to 4096x2304"] = _wanted("hevc", 6, width_max=4096, height_max=2304)
    forms["hevc, 6+3, 640x368"] = _wanted("hevc", 6, width=640, height=368)
    forms["hevc, 6+3, flags 0"] = _wanted("hevc", 6, flags=0)
    forms["hevc, 6+3, key pictures only"] = _wanted("hevc", 6, intra_only=1)
    _write(f"\n{count} decoders of each form, 1080p; ms of cuvidCreateDecoder and cuvidDestroyDecoder, MiB of one")
    _write(f"{'form':32}{'create':>9}{'median':>9}{'max':>9}{'destroy':>9}{'MiB':>9}{'change':>9}")
    _make(library, forms["hevc, 6+3 surfaces"], 1)  # the first of a process
    for name, wanted in forms.items():
        before = engines.device.free_memory()
        try:
            made, ms = _make(library, wanted, count)
        except nvcuvid.NvdecError as error:
            _write(f"{name:32} {error}")
            continue
        taken = (before - engines.device.free_memory()) / count / 2**20
        changed = [_change(library, decoder, wanted) for decoder in made]
        begun = perf_counter()
        for decoder in made:
            library.cuvidDestroyDecoder(decoder)
        gone = (perf_counter() - begun) * 1e3 / count
        done = [row for row in changed if row is not None]
        found = f"{np.median(done):9.2f}" if done else f"{'refused':>9}"
        _write(f"{name:32}{np.mean(ms):9.2f}{np.median(ms):9.2f}{max(ms):9.2f}{gone:9.2f}{taken:9.1f}{found}")
    engines.close()


def _make(library: Any, wanted: DecoderParameters, count: int) -> tuple[list[c_void_p], list[float]]:
    made, ms = [], []
    for _ in range(count):
        decoder, begun = c_void_p(), perf_counter()
        nvcuvid._checked("cuvidCreateDecoder", library.cuvidCreateDecoder(byref(decoder), byref(wanted)))
        ms.append((perf_counter() - begun) * 1e3)
        made.append(decoder)
    return made, ms


def _change(library: Any, decoder: c_void_p, wanted: DecoderParameters) -> float | None:
    """Change a decoder to 640x368; None if it is refused."""
    change = ChangeParameters(640, 368, 640, 368, wanted.surfaces, area=ShortArea(0, 0, 640, 368))
    begun = perf_counter()
    if library.cuvidReconfigureDecoder(decoder, byref(change)):
        return None
    return (perf_counter() - begun) * 1e3


# --- threads and processes ------------------------------------------------------------------------------------------


def _ways(clip: Path, sessions: int) -> None:
    _write(f"\n{sessions} sessions, opened by")
    _write(f"{'':32}{'seconds':>9}{'ms each':>9}{'CPU each':>9}{'closed':>9}")
    for processes, threads in ((1, 1), (1, 4), (4, 1), (4, 2), (8, 1), (4, 12)):
        share = sessions // processes
        with ExitStack() as stack:
            children = [
                stack.enter_context(_started(clip, "opens", str(share), str(threads))) for _ in range(processes)
            ]
            for child in children:
                child.readline()
            for child in children:
                child.tell("go")
            times = [json.loads(child.readline()) for child in children]
            begun, ended = min(row[0] for row in times), max(row[1] for row in times)
            cpu_ms = sum(row[2] for row in times) * 1e3 / (share * processes)
            for child in children:
                child.tell("close")
            closed = max(json.loads(child.readline()) for child in children)
        took = ended - begun
        name = f"{processes} processes of {threads} threads"
        _write(f"{name:32}{took:9.2f}{took * 1e3 / (share * processes):9.1f}{cpu_ms:9.1f}{closed:9.2f}")


def _child_opens(clip: Path, count: str, threads: str, repeat: str = "") -> int:
    codec, packets = _packets(clip)
    engines = Engines(0, shared=True)
    sessions: list[NvdecSession] = []

    def work() -> None:
        engines.device.make_current()
        for _ in range(int(count) // int(threads)):
            sessions.append(_opened(engines, codec, packets))

    _write("ready")
    while sys.stdin.readline():
        begun, cpu = perf_counter(), process_time()
        workers = [threading.Thread(target=work) for _ in range(int(threads))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        _write(json.dumps((begun, perf_counter(), process_time() - cpu)))
        sys.stdin.readline()
        begun = perf_counter()
        while sessions:
            sessions.pop().close()
        _write(json.dumps(perf_counter() - begun))
        if not repeat:
            break
    return 0


# --- beside those that decode ---------------------------------------------------------------------------------------

_ACTS = (
    "sessions",
    "sessions, 30 ms apart",
    "sessions, 100 ms apart",
    "sessions, 200 ms apart",
    "sessions, none is closed",
    "decoders",
    "decoders, 100 ms apart",
    "changed decoders",
    "first pictures",
    "shared memory",
    "memory",
    "streams and events",
    "contexts",
    "crowd of 4 processes with 8 threads each",
)


def _beside(clip: Path, args: argparse.Namespace) -> None:
    windows: list[tuple[str, float, float, str]] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        files = [Path(folder) / f"{number}.npz" for number in range(6)]
        runners = [
            stack.enter_context(_started(clip, "decodes", str(args.decoding // 4), str(file))) for file in files[:4]
        ]
        runners.append(stack.enter_context(_started(clip, "watches", str(files[4]))))
        runners.append(stack.enter_context(_started(clip, "computes", str(files[5]), str(args.work))))
        for runner in runners:
            runner.readline()
        opener = stack.enter_context(_started(clip, "acts", str(args.opener)))
        opener.readline()
        stacks = stack.enter_context(_Stacks(opener.pid))
        for act in _ACTS:
            sleep(0.5)
            windows.append(("nothing", perf_counter(), 0.0, ""))
            sleep(1.0)
            opener.tell(f"{args.seconds} {act}")
            windows[-1] = (*windows[-1][:2], perf_counter(), "")
            answer = json.loads(opener.readline())
            windows.append((act, answer["begun"], answer["ended"], f"{answer['count']:4} {answer['ms']:7.1f}"))
            sleep(0.3)
            opener.tell("close")
            answer = json.loads(opener.readline())
            if answer["count"]:
                windows.append((f"closing {act}", *(answer[k] for k in ("begun", "ended")), f"{answer['count']:4}"))
        for runner in runners:
            runner.tell("end")
            runner.readline()
        found = [_read(file) for file in files]
    _tell(windows, found, args)
    _write("\nwhere the opener was in the kernel, samples of all threads, the innermost call first")
    for where, count in stacks.found.most_common(16):
        _write(f"{count:6} {where}")


Calls = dict[str, "np.ndarray[Any, Any]"]
"""By name: when each began and its duration, ns."""


def _read(file: Path) -> Calls:
    with np.load(file) as data:
        return {name: data[name] for name in data.files}


def _within(calls: list[Calls], name: str, spans: list[tuple[float, float]]) -> np.ndarray[Any, Any]:
    """ms of a call's durations that began, or ended, in these times."""
    rows = [call[name] for call in calls if name in call]
    if not rows:
        return np.zeros(0)
    every = np.concatenate(rows)
    begun, ended = every[:, 0] / 1e9, every.sum(1) / 1e9
    inside = np.zeros(len(every), bool)
    for first, last in spans:
        inside |= (ended >= first) & (begun <= last)
    found: np.ndarray[Any, Any] = every[inside, 1] / 1e6
    return found


def _tell(windows: list[tuple[str, float, float, str]], found: list[Calls], args: argparse.Namespace) -> None:
    decoding, watching, computing = found[:4], found[4:5], found[5:]
    labels = dict.fromkeys(row[0] for row in windows)
    _write(f"\nbeside {args.decoding} sessions that decode in time; opened on GPU {args.opener}; ms, p50 p99 max")
    _write(f"{'':34}{'done, ms each':>14}  {'late':>20}  {'picture':>20}  {'decoded':>20}  {'computed':>20}")
    for label in labels:
        spans = [row[1:3] for row in windows if row[0] == label]
        done = next(row[3] for row in windows if row[0] == label)
        parts = [
            _percentiles(_within(calls, name, spans))
            for calls, name in (
                (decoding, "late"),
                (decoding, "picture"),
                (watching, "decoded"),
                (computing, "computed"),
            )
        ]
        _write(f"{label:34}{done:>14}  " + "  ".join(parts))
    names = sorted({name for call in found for name in call if name.startswith("cu")})
    _write("\nms of single calls in these times: p99 and max; only calls that took 2 ms at least once")
    for name in names:
        cells = {}
        for label in labels:
            took = _within(found, name, [row[1:3] for row in windows if row[0] == label])
            if len(took) > 20:
                cells[label] = (np.percentile(took, 99), took.max(), (took > 2).mean())
        if cells and max(row[1] for row in cells.values()) >= 2:
            _write(f"{name}")
            for label, (p99, most, share) in cells.items():
                _write(f"    {label:34}{p99:9.2f}{most:9.1f}   over 2 ms: {share:.2%}")


def _percentiles(ms: np.ndarray[Any, Any]) -> str:
    if not len(ms):
        return f"{'-':>20}"
    return f"{np.percentile(ms, 50):6.2f}{np.percentile(ms, 99):7.2f}{ms.max():7.1f}"


def _finish(rows: Rows, file: str) -> None:
    calls: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, begun, took in rows:
        calls[name].append((begun, took))
    np.savez(file, **{name: np.array(row, np.int64) for name, row in calls.items()})  # type: ignore[arg-type]
    _write("done")


def _told(until_ns: int) -> bool:
    """Wait until a time; returns whether a line has come."""
    left = max(0, until_ns - perf_counter_ns()) / 1e9
    return bool(select([sys.stdin], [], [], left)[0])


def _child_decodes(clip: Path, count: str, file: str) -> int:
    """Decode sessions in time, as a capture process does, on one thread."""
    codec, packets = _packets(clip)
    rows, sessions = _timed(), []
    engines = Engines(0, shared=True)
    for _ in range(int(count)):
        sessions.append(engines.session(codec, low_latency=False, surfaces=_SURFACES))
        _first_picture(sessions[-1], packets)
        sessions[-1].drain()
    _write("ready")
    step, begun, turn = round(1e9 / _FPS / len(sessions)), perf_counter_ns(), 0
    while not _told(begun + turn * step):
        due = begun + turn * step
        late = perf_counter_ns() - due
        rows.append(("late", due, late))
        packet = packets[turn // len(sessions) % len(packets)]
        session, number = sessions[turn % len(sessions)], turn // len(sessions)
        before = perf_counter_ns()
        if number and number % len(packets) == 0:
            session.drain()
        for load, _ in session.decode(packet.buffer_ptr, packet.buffer_size, number):
            load(True, False)
        rows.append(("picture", before, perf_counter_ns() - before))
        turn += 1
    _finish(rows, file)
    return 0


def _child_watches(clip: Path, file: str) -> int:
    """Decode one session at once, and note how long the GPU needs for each picture."""
    codec, packets = _packets(clip)
    rows: Rows = []
    engines = Engines(0)
    decoder = nvcuvid.StreamDecoder(codec, Stream().handle, low_latency=True)
    turn, begun = 0, 0
    while not begun or not _told(begun + round(turn * 1e9 / _FPS)):
        packet = packets[turn % len(packets)]
        before = perf_counter_ns()
        for number, _ in decoder.parse(packet.buffer_ptr, packet.buffer_size, turn):
            while not decoder.is_done(number):
                sleep(0.0002)
        if begun:
            rows.append(("decoded", before, perf_counter_ns() - before))
        else:
            begun = perf_counter_ns()
            _write("ready")
        turn += 1
    engines.close()
    _finish(rows, file)
    return 0


def _child_computes(clip: Path, file: str, mebibytes: str) -> int:  # noqa: ARG001
    """A stand-in for a lane: some ms of work every 10 ms, for which it sleeps until the GPU's interrupt."""
    rows = _timed()
    engines = Engines(0)
    stream, event = Stream(), Event()
    size = int(mebibytes) << 20
    source, target = DeviceBuffer(size), DeviceBuffer(size)
    _write("ready")
    begun, turn = perf_counter_ns(), 0
    while not _told(begun + turn * 10_000_000):
        before = perf_counter_ns()
        for _copy in range(8):
            stream.copy(target.pointer, source.pointer, size)
        event.record(stream)
        event.synchronize()
        rows.append(("computed", before, perf_counter_ns() - before))
        turn = max(turn + 1, (perf_counter_ns() - begun) // 10_000_000)
    engines.close()
    _finish(rows, file)
    return 0


def _child_acts(clip: Path, device: str) -> int:
    codec, packets = _packets(clip)
    engines = Engines(int(device), shared=True)
    library = nvcuvid._library()
    held: list[Callable[[], object]] = []

    def session(*, pictures: bool = True) -> None:
        made = engines.session(codec, low_latency=True, surfaces=_SURFACES)
        held.append(made.close)
        if pictures:
            _first_picture(made, packets)

    def decoder() -> c_void_p:
        made = _make(library, _wanted(codec, 6), 1)[0][0]
        held.append(lambda: library.cuvidDestroyDecoder(made))
        return made

    def changed() -> None:
        _change(library, first[0], _wanted(codec, 6))

    def picture() -> None:
        for packet in packets[: len(packets) // 4]:
            for load, _ in ready[0].decode(packet.buffer_ptr, packet.buffer_size, None):
                load(True, False)
                return

    def streams() -> None:
        made = Stream()
        held.append(made.close)
        held.extend(Event(awaited=False).close for _ in range(_SURFACES))

    def context() -> None:
        subprocess.run(_command(clip, "context", device), check=True, stdout=subprocess.DEVNULL)

    kinds: dict[str, Callable[[], object]] = {
        "sessions": session,
        "decoders": decoder,
        "changed": changed,
        "first": picture,
        "shared": lambda: held.append(SharedBuffer(int(device), _PICTURE_BYTES).close),
        "memory": lambda: held.append(DeviceBuffer(_PICTURE_BYTES).close),
        "streams": streams,
        "contexts": context,
    }
    crowd = [_Started(_spawned(clip, "opens", "16", "8", "again")) for _ in range(4)]
    for member in crowd:
        member.readline()

    def all_at_once() -> None:
        for member in crowd:
            member.tell("go")
        for member in crowd:
            member.readline()
        for member in crowd:
            member.tell("close")
        for member in crowd:
            member.readline()

    kinds["crowd"] = all_at_once
    first = [decoder()]
    ready = [_opened(engines, codec, packets)]
    held.clear()
    _write("ready")
    for line in sys.stdin:
        begun, count = perf_counter(), 0
        if line.strip() == "close":
            count = len(held)
            while held:
                held.pop()()
            _write(json.dumps({"count": count, "begun": begun, "ended": perf_counter()}))
            continue
        seconds, _, act = line.strip().partition(" ")
        kind, gap = kinds[act.replace(",", " ").split()[0]], 0.0
        if "ms apart" in act:
            gap = float(act.split()[1]) / 1e3
        spent = 0.0
        while perf_counter() - begun < float(seconds) and len(held) < 120:
            before = perf_counter()
            kind()
            spent += perf_counter() - before
            count += 1
            sleep(gap)
        _write(json.dumps({"count": count, "begun": begun, "ended": perf_counter(), "ms": spent * 1e3 / count}))
    return 0


def _child_context(clip: Path, device: str) -> int:  # noqa: ARG001
    Engines(int(device)).close()
    return 0


_CHILDREN: dict[str, Callable[..., int]] = {
    "calls": _child_calls,
    "opens": _child_opens,
    "decodes": _child_decodes,
    "watches": _child_watches,
    "computes": _child_computes,
    "acts": _child_acts,
    "context": _child_context,
}


def _command(clip: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", __spec__.name, str(clip), "--child", *arguments]


def _child(clip: Path, *arguments: str) -> str:
    done = subprocess.run(_command(clip, *arguments), check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()[-1]


class _Stacks(threading.Thread):
    """Samples the kernel's stacks of a process, which only root may read."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.found: Counter[str] = Counter()
        self._tasks, self._ended = Path(f"/proc/{pid}/task"), threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.005):
            for task in self._tasks.glob("*/stack"):
                with suppress(OSError):
                    calls = [row.split()[-1].partition("+")[0] for row in task.read_text().splitlines()]
                    self.found[" < ".join(calls[:7]) or "running"] += 1

    def __enter__(self) -> _Stacks:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


class _Started:
    """A child process that is told lines and answers lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self.pid = process, process.pid

    def tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def readline(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self._process.args))} has ended")  # type: ignore[arg-type]
        return line


def _spawned(clip: Path, *arguments: str) -> subprocess.Popen[str]:
    """It ends when its input does."""
    command = _command(clip, *arguments)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


@contextmanager
def _started(clip: Path, *arguments: str) -> Iterator[_Started]:
    process = _spawned(clip, *arguments)
    try:
        yield _Started(process)
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
