"""The configuration: what it refuses, and that config.yaml tells the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from daemon.config.load import load, parse
from daemon.config.model import ModelConfig
from daemon.config.root import Config
from daemon.config.section import literal
from daemon.config.sources import AvConfig, CameraConfig, SourceBase, SyntheticConfig
from daemon.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
GOOD = "model: {path: demo.onnx}\nsources:\n  - {id: cam, type: synthetic}\n"
RECORDED = GOOD.replace("synthetic", "av, url: 'rtsp://h/1', record: RECORD") + "record: {stores: {a: {path: x}}}\n"


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: [", "", "not YAML"),
        ("just text", "", "mapping"),
        (GOOD + "lanez: 2\n", "lanez", "did you mean `lanes`"),
        (GOOD.replace("synthetic", "synthetic, fsp: 3"), "sources[0]", "did you mean `fps`"),
        (GOOD.replace("synthetic", "synthetic, fps: fast"), "sources[0].fps", "between 0.001 and 1000, not 'f"),
        (GOOD.replace("synthetic", "webcam"), "sources[0].type", "one of av, camera, synthetic, not 'webcam'"),
        (GOOD.replace("synthetic", "rtsp"), "sources[0].type", "for rtsp it is av"),
        (GOOD.replace("synthetic", "av, url: x, fps: 5"), "sources[0]", "unknown key `fps`; did you mean `max_fps`?"),
        (GOOD.replace("synthetic", "av, fps_max: 5"), "sources[0]", "unknown key `fps_max`; did you mean `max_fps`?"),
        (GOOD.replace("synthetic", "synthetic, 5: x"), "sources[0]", "the key 5 is not a text"),
        (GOOD.replace(", type: synthetic", ""), "sources[0]", "missing key `type`: it is one of av, camera, synthetic"),
        (GOOD.replace("demo.onnx", "x, confidence: 40"), "model.confidence", "a number between 0 and 1, not 40"),
        (GOOD.replace("demo.onnx", "x, input_size: [9]"), "model.input_size", "not a list of 1"),
        (GOOD + "record: {stores: {a/b: {path: x}}}\n", "record.stores", "letters, digits"),
        (
            GOOD + "record: {stores: {a: {path: x}, b: {path: x/y}}}\n",
            "record.stores.b.path",
            "within the folder of 'a'",
        ),
        (GOOD + "record: {stores: {a: {path: x, max_gib: 0}}}\n", "record.stores.a.max_gib", "above 0"),
        (GOOD.replace("synthetic", "synthetic, record: continuous"), "sources[0].record", "encoded from a camera"),
        (GOOD.replace("synthetic", "av, url: a.mp4, record: events"), "sources[0].record", "encoded from a camera"),
        (RECORDED.replace("RECORD", "{stores: [b]}"), "sources[0].record.stores", "named 'b': there are a"),
        (RECORDED.replace("RECORD", "{url: main.mp4}"), "sources[0].record.url", "rtsp://192.0.2.10/main"),
        (RECORDED.replace("RECORD", "{pre_s: 500}"), "sources[0].record.pre_s", "between 0 and 120"),
        ("model: {path: x}\nsources: {cam: {type: av}}\n", "sources", "a list: begin each of its items with -"),
        ("model: {path: x}\nsources:\n  - id: cam\n\ttype: av\n", "line 4", "indent with spaces"),
        ("model: {path: x: y}\n", "line 1, column 16", "not YAML"),
        (GOOD + "events: {journal: ''}\n", "events.journal", "write auto, off, or the name of a file"),
        (GOOD + "events: {max_rows: 0}\n", "events.max_rows", "between 1 and 10000000, not 0"),
        (GOOD + "events: {max_age_days: 0}\n", "events.max_age_days", "above 0"),
        (GOOD + "events: {counts_interval_s: 0}\n", "events.counts_interval_s", "between 0.1 and 3600, not 0"),
        (GOOD + "publisher: {masks: x}\n", "publisher.masks", "must be one of off, polygon, rle, not 'x'"),
        (GOOD + "publisher: {max_masks: 0}\n", "publisher.max_masks", "between 1 and 10000, not 0"),
        (GOOD + "events: {file: x}\n", "events", "unknown key `file`"),
        (GOOD + "events: {snapshots: {max_mib: 5}}\n", "events.snapshots", "folder"),
        (GOOD.replace("synthetic", "synthetic, fps: 5e-324"), "sources[0].fps", "between 0.001 and 1000"),
        (GOOD.replace("synthetic", "synthetic, fps: .nan"), "sources[0].fps", "finite"),
        (GOOD.replace("synthetic", "av, url: x, read_timeout_s: 1e308"), "sources[0].read_timeout_s", "3600"),
        (GOOD.replace("synthetic", "av, url: x, decode_threads: 9999"), "sources[0].decode_threads", "1 and 16"),
        (GOOD.replace("synthetic", "av, url: x, user: [1]"), "sources[0].user", "a text, not a list of 1"),
        (GOOD.replace("synthetic", "av, url: x, password: y"), "sources[0].password", "wants a user"),
        (GOOD.replace("synthetic", "av, url: x, user: y"), "sources[0].user", "is a path"),
        (GOOD.replace("synthetic", "av, url: 'rtsp://a:b@c', user: y"), "sources[0].user", "write one of them"),
        (GOOD.replace("synthetic", "camera, device: 'rtsp://a:b@c'"), "sources[0].device", "set type: av and url"),
        (GOOD.replace("type: synthetic", "type: av"), "sources[0]", "`url`"),
        (GOOD + "  - {id: cam, type: synthetic}\n", "sources[1].id", "used twice"),
        (GOOD + "  - {id: CAM, type: synthetic}\n", "sources[1].id", "differ in nothing but their case"),
        (GOOD.replace("id: cam", "id: a/b"), "sources[0].id", "letters"),
        (GOOD.replace("id: cam", "id: 'a b'"), "sources[0].id", "letters"),
        (GOOD.replace("id: cam", "id: .."), "sources[0].id", "means a folder"),
        ("model: {path: x}\nsources: []\n", "sources", "none is enabled"),
        (GOOD.replace("synthetic", "synthetic, enabled: false"), "sources", "none is enabled"),
        (GOOD.replace("synthetic", "synthetic, tiles: 2"), "sources[0].tiles", "2"),
        (GOOD.replace("synthetic", "synthetic, tiles: 2x9"), "sources[0].tiles", "such as 2x2, with 1 to 8 of each"),
        (GOOD.replace("synthetic", "synthetic, tiles: 1x1"), "sources[0].tiles", "one tile is the whole picture"),
        (GOOD.replace("synthetic", "synthetic, tiles: {columns: 2}"), "sources[0].tiles", "`rows`"),
        (
            GOOD.replace("synthetic", "synthetic, tiles: {columns: 2, rows: 2, overlap: 0.01}"),
            "sources[0].tiles.overlap",
            "between 0.02 and 0.5",
        ),
        (GOOD.replace("synthetic", "synthetic, input_size: 0"), "sources[0].input_size", "between 1 and 16384"),
        (GOOD.replace("synthetic", "synthetic, input_size: [640]"), "sources[0].input_size", "not a list of 1"),
        (GOOD.replace("synthetic", "synthetic, input_size: 1280x736"), "sources[0].input_size", "'1280x736'"),
        (
            GOOD
            + "".join(f"  - {{id: s{size}, type: synthetic, input_size: {size}}}\n" for size in range(32, 352, 32)),
            "sources",
            "10 input sizes beside the model's own, and 8 are possible",
        ),
        (GOOD.replace("synthetic", "synthetic, roi: [[0, 0], [1, 1]]"), "sources[0].roi", "three different points"),
        (
            GOOD.replace("synthetic", "synthetic, roi: [[0, 0], [1, 1], [1, 0], [0, 1]]"),
            "sources[0].roi",
            "crosses itself",
        ),
        (GOOD.replace("synthetic", "synthetic, roi: [[0, 0], [0.5, 0], [1, 0]]"), "sources[0].roi", "roi"),
        (
            GOOD.replace("synthetic", "synthetic, roi: [[0, 0], [640, 0], [640, 360]]"),
            "sources[0].roi",
            "roi: {points: [...], frame_size: [width, height]}",
        ),
        (
            GOOD.replace(
                "synthetic", "synthetic, roi: {points: [[0, 0], [640, 0], [640, 361]], frame_size: [640, 360]}"
            ),
            "sources[0].roi.points[2]",
            "outside of frame_size",
        ),
        (GOOD + "lanes: 0\n", "lanes", "between 1 and 16, not 0"),
        (GOOD + "lanes: 1\nlanes: 2\n", "lanes", "written twice"),
        (GOOD + "publisher: {endpoint: 'tcp://*:5556'}\n", "publisher.endpoint", "lookout keys new"),
        (GOOD + "publisher: {endpoint: 'tcp://10.0.0.1:5556'}\n", "publisher.endpoint", "allow_plaintext"),
        (GOOD + "publisher: {endpoint: 'udp://x'}\n", "publisher.endpoint", "tcp://"),
        (GOOD + "publisher: {endpoint: 'tcp://127.0.0.1:70000'}\n", "publisher.endpoint", "65535"),
        (GOOD + "publisher: {endpoint: 'tcp://127.0.0.1:-1'}\n", "publisher.endpoint", "65535"),
        (GOOD + "publisher: {endpoint: 'tcp://127.0.0.1'}\n", "publisher.endpoint", "port"),
        (GOOD + "publisher: {curve: {}}\n", "publisher.curve", "secret_key"),
        (GOOD.replace("demo.onnx", "'${HOME}/demo.onnx'"), "model.path", "only replaced in URLs and secrets"),
        (
            GOOD.replace("type: synthetic", "type: av, url: 'rtsp://${NO_SUCH}@x'"),
            "sources[0].url",
            "NO_SUCH is not set",
        ),
    ],
)
def test_refused_in_one_line_with_the_place(text: str, where: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    message = str(caught.value)
    assert where in message
    assert what in message
    assert "\n" not in message


def test_a_key_that_is_written_twice_is_named_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"^board\.max_age_ms: is written twice, in lines 2 and 3"):
        parse("board:\n  max_age_ms: 1\n  max_age_ms: 2\n" + GOOD)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:5556", "tcp://localhost:1", "tcp://[::1]:5556", "ipc:///run/x"])
def test_local_endpoints_need_no_keys(endpoint: str) -> None:
    assert parse(GOOD + f"publisher: {{endpoint: '{endpoint}'}}\n").publisher.endpoint == endpoint


def test_environment_in_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value is used, and does not show."""
    monkeypatch.setenv("CAMERA_PASSWORD", "hunter2")
    text = GOOD.replace("type: synthetic", "type: av, url: 'rtsp://me:${CAMERA_PASSWORD}@cam/1'")
    (source,) = parse(text).sources
    assert isinstance(source, AvConfig)
    assert source.url.reveal() == "rtsp://me:hunter2@cam/1"
    assert "hunter2" not in repr(source)
    assert str(source.url) == "rtsp://***@cam/1"


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("url: 'rtsp://me:${PW}@cam/1'", "rtsp://me:p%40ss%2Fw%231@cam/1"),
        ("url: 'rtsp://me:p@ss/w#1@cam/1'", "rtsp://me:p%40ss%2Fw%231@cam/1"),
        ("url: 'rtsp://me:p%40ss@cam/1'", "rtsp://me:p%40ss@cam/1"),
        ("url: 'rtsp://cam/1', user: me, password: '${PW}'", "rtsp://me:p%40ss%2Fw%231@cam/1"),
        ("url: 'rtsp://cam/1', user: 'me@home', password: '100%25'", "rtsp://me%40home:100%2525@cam/1"),
        ("url: 'http://cam/v?pwd=${PW}'", "http://cam/v?pwd=p%40ss%2Fw%231"),
        ("url: 'rtsp://cam/user=me&password=${PW}'", "rtsp://cam/user=me&password=p@ss/w#1"),
        ("url: 'rtsp://cam:554/live@1'", "rtsp://cam:554/live@1"),
        ("url: 'clips/me@home.mp4'", "clips/me@home.mp4"),
    ],
)
def test_what_a_password_is_made_of_does_not_matter(source: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is percent-encoded where a URL has it before its host or in its query; what is encoded stays so."""
    monkeypatch.setenv("PW", "p@ss/w#1")
    (found,) = parse(GOOD.replace("type: synthetic", f"type: av, {source}")).sources
    assert isinstance(found, AvConfig)
    assert found.address == address


def test_all_mistakes_are_named_at_once_with_their_lines() -> None:
    """Of 150 cameras two have one, and another key; the text of more than ten counts the others."""
    rows = [f"  - id: door-{number}\n    type: av\n    url: rtsp://192.0.2.1/{number}\n" for number in range(150)]
    rows[87] = rows[87].replace("url:", "urll:")
    rows[119] += "    max_fps: -1\n"
    text = "model: {path: demo.onnx}\nsources:\n" + "".join(rows) + "lanes: many\n"
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value) == (
        "3 mistakes: sources[87]: unknown key `urll`; did you mean `url`? (door-87, line 266); "
        "sources[119].max_fps: must be a number between 0.001 and 1000, not -1 (door-119, line 363); "
        "lanes: must be a whole number between 1 and 16, not 'many' (line 454)"
    )
    with pytest.raises(ConfigError, match=r"^151 mistakes: .*\(door-9, line 31\); and 141 more$") as caught:
        parse(text.replace("lanes: many\n", "").replace("urll:", "url:").replace("type: av", "type: video"))
    assert len(caught.value.mistakes) == 151
    assert caught.value.mistakes[-2].startswith("sources[148].type: must be one of av")


def test_every_mistake_of_many_cameras_has_its_id_and_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every kind, several of one camera, and beside mistakes elsewhere; nothing is said that only follows."""
    monkeypatch.delenv("NO_SUCH", raising=False)
    rows = [f"  - id: door-{number}\n    type: av\n    url: rtsp://192.0.2.1/{number}\n" for number in range(150)]
    assert parse("model: {path: demo.onnx}\nsources:\n" + "".join(rows)).sources[149].id == "door-149"
    rows[3] = rows[3].replace("url:", "urll:") + "    max_fps: -1\n    enabled: 7\n"
    rows[20] = rows[20].replace("door-20", "door-19")
    rows[21] = rows[21].replace("door-21", "Door-19")
    rows[40] = rows[40].replace("rtsp:", "rtps:")
    rows[41] = rows[41].replace("192.0.2.1", "192.0.2.1:99999") + "    password: alone\n"
    rows[60] += "    rules:\n      - {type: zone, name: a b, points: [[0, 0], [1, 1]]}\n"
    rows[70] += "    tiles: 99x1\n    roi: [[0, 0]]\n"
    rows[80] = rows[80].replace("type: av", "type: rtsp") + "    max_fps: fast\n"
    rows[90] = rows[90].replace("    url: rtsp://192.0.2.1/90\n", "")
    rows[100] += "    model: people\n"
    rows[110] += "    url: rtsp://192.0.2.2/110\n"
    rows[120] = "  - door-120\n"
    rows[130] = rows[130].replace("192.0.2.1/130", "me:${NO_SUCH}@192.0.2.1/130") + "    record: {stores: [disk]}\n"
    rows[140] += "    record: {stores: [disk]}\n"
    text = "model: {path: demo.onnx}\nsources:\n" + "".join(rows)
    text += "lanes: many\nlane: 1\nhttp: {enabled: true, host: 0.0.0.0}\nboard: {depth: -1, modee: live}\n"
    with pytest.raises(ConfigError) as caught:
        parse(text)
    expected = [
        ("door-3", "unknown key `urll`; did you mean `url`?", "urll:"),
        ("door-3", "sources[3].max_fps: must be a number", "max_fps: -1"),
        ("door-3", "sources[3].enabled: must be true or false, not 7", "enabled: 7"),
        ("door-19", "sources[20].id: 'door-19' is used twice", "id: door-19"),
        ("Door-19", "sources[21].id: 'Door-19' and 'door-19' differ in nothing but their case", "id: Door-19"),
        ("door-40", "rtps:// is nothing that video comes from; did you mean rtsp://?", "rtps://"),
        ("door-41", "sources[41].url: port 99999 is not one", ":99999"),
        ("door-41", "sources[41].password: wants a user, too", "password: alone"),
        ("door-60", "sources[60].rules[0].name: 'a b' may hold", "name: a b"),
        ("door-60", "sources[60].rules[0].points: a polygon needs three", "points: [[0, 0]"),
        ("door-70", "sources[70].roi: a polygon needs three", "roi: [[0, 0]]"),
        ("door-70", "sources[70].tiles: '99x1' is not", "tiles: 99x1"),
        (
            "door-80",
            "sources[80].type: must be one of av, camera, synthetic, not 'rtsp': for rtsp it is av",
            "type: rtsp",
        ),
        ("door-80", "sources[80].max_fps: must be a number", "max_fps: fast"),
        ("door-90", "sources[90]: missing key `url`", "id: door-90"),
        ("door-100", "sources[100].model: there is one model, without a name", "model: people"),
        ("door-110", "sources[110].url: is written twice, in lines", "url: rtsp://192.0.2.1/110"),
        ("", "sources[120]: must be a mapping", "- door-120"),
        ("door-130", "sources[130].url: the environment variable NO_SUCH is not set", "${NO_SUCH}"),
        ("door-140", "sources[140].record.stores: no store is named 'disk'", "record: {stores: [disk]}"),
        ("", "lanes: must be a whole number", "lanes: many"),
        ("", "unknown key `lane`; did you mean `lanes`?", "lane: 1"),
        ("", "http.host: 0.0.0.0 can be reached", "host: 0.0.0.0"),
        ("", "board.depth: must be", "depth: -1"),
        ("", "board: unknown key `modee`; did you mean `mode`?", "modee: live"),
    ]
    lines, said = text.splitlines(), list(caught.value.mistakes)
    for id, words, content in expected:
        found = [line for line in said if words in line and line.endswith(")")]
        assert len(found) == 1, (words, said)
        place, _, number = found[0].rpartition("(")[2].rstrip(")").rpartition("line ")
        assert (place.rstrip(", "), content in lines[int(number) - 1]) == (id, True), found
        said.remove(found[0])
    assert said == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lanes: many\n", ["missing key `model`", "missing key `sources`", "lanes: must be"]),
        ("lanes: many\nmodels: {a: {path: m}}\nsources: null\n", ["lanes: must be", "sources: must be a list"]),
        ("lanes: many\nmodle: {path: m}\nsources: []\n", ["lanes: must be", "unknown key `modle`"]),
        (GOOD + "lanes: many\nfleet: {labels: {a: 5}}\n", ["lanes: must be", "fleet.labels[...]: must be a text ("]),
    ],
)
def test_no_mistake_hides_another(text: str, says: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert len(caught.value.mistakes) == len(says), caught.value.mistakes
    for mistake, words in zip(caught.value.mistakes, says):
        assert mistake.startswith(words)


def test_a_dollar_more_stands_for_the_text_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In URLs, secrets and paths; and what is written again is as it was."""
    monkeypatch.setenv("PW", "hunter2")
    file = tmp_path / "config.yaml"
    text = GOOD.replace("type: synthetic", "type: av, url: '$${PW}/${PW}.mkv'")
    file.write_text(text.replace("demo.onnx", "'$${PW}/demo.onnx'"))
    found = load(file)
    (source,) = found.sources
    assert isinstance(source, AvConfig)
    assert source.url.reveal() == f"{tmp_path}/${{PW}}/hunter2.mkv"
    assert source.url.written == f"{tmp_path}/$${{PW}}/${{PW}}.mkv"
    assert found.model.path.parent == tmp_path / "${PW}"
    assert literal("a${PW}$${PW}") == "a$${PW}$$${PW}"


def test_no_message_quotes_a_secret() -> None:
    text = GOOD.replace("type: synthetic", "type: av, url: {hunter2: hunter2}, options: {a: [hunter2]}")
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert "hunter2" not in str(caught.value)


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(GOOD.replace("type: synthetic", "type: av, url: clips/a.mp4"))
    loaded = load(file)
    assert loaded.model.path == tmp_path / "demo.onnx"
    assert isinstance(loaded.sources[0], AvConfig)
    assert loaded.sources[0].url.reveal() == str(tmp_path / "clips/a.mp4")


def test_a_home_is_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    file = tmp_path / "c.yaml"
    file.write_text(GOOD.replace("demo.onnx", "~/demo.onnx").replace("type: synthetic", "type: av, url: ~/clips/a.mp4"))
    loaded = load(file)
    assert loaded.model.path == tmp_path / "home" / "demo.onnx"
    assert isinstance(loaded.sources[0], AvConfig)
    assert loaded.sources[0].url.reveal() == str(tmp_path / "home" / "clips" / "a.mp4")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="does not exist: pass one with -c"):
        load(Path("nowhere.yaml"))


def test_both_forms_of_a_view_are_the_same() -> None:
    short = parse(GOOD.replace("synthetic", "synthetic, tiles: 3x2, roi: [[0, 0], [1, 0], [1, 0.5]]")).sources[0]
    text = "synthetic, tiles: {columns: 3, rows: 2}, roi: {points: [[0, 0], [8, 0], [8, 2]], frame_size: [8, 4]}"
    long = parse(GOOD.replace("synthetic", text)).sources[0]
    assert short.tiling == long.tiling
    assert short.tiling is not None
    assert short.tiling.pictures == 7
    assert short.region is not None
    assert long.region is not None
    assert short.region.scaled(100, 100) == long.region.scaled(100, 100)
    assert (parse(GOOD).sources[0].tiling, parse(GOOD).sources[0].region) == (None, None)


def test_config_yaml_explains_every_key_with_its_default() -> None:
    """No key of the code is missing in config.yaml, none is invented, and the defaults it shows are the code's."""
    path = ROOT / "config.yaml"
    load(path)
    raw = yaml.safe_load(path.read_text())
    by_type = {source["type"]: source for source in raw.pop("sources")}
    shown_by_all = set().union(*by_type.values()) - {"type"}
    kinds = {"av": AvConfig, "camera": CameraConfig, "synthetic": SyntheticConfig}
    assert shown_by_all == {name for kind in kinds.values() for name in kind.__struct_fields__}
    for name, kind in kinds.items():
        _same_defaults(kind, by_type[name], but=("id", "url", "enabled", "fps", "seed"))
    _same_defaults(Config, raw, but=("model", "sources"))
    _same_defaults(ModelConfig, raw["model"], but=("path",))


def _same_defaults(kind: Any, shown: dict[str, object], but: tuple[str, ...]) -> None:
    for field in msgspec.structs.fields(kind):
        if field.name in but or (field.name not in shown and issubclass(kind, SourceBase)):
            continue
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if isinstance(default, msgspec.Struct):
            _same_defaults(type(default), shown[field.name], but=())  # type: ignore[arg-type]
        else:
            plain = list(default) if isinstance(default, tuple) else default
            assert shown[field.name] == plain, f"{kind.__name__}.{field.name}"


def test_a_plain_off_is_no_boolean() -> None:
    text = GOOD + "publisher: {masks: off}\nevents: {journal: off}\ngpu: {mps: off}\nadmission: off\n"
    parsed = parse(text)
    assert (parsed.publisher.masks, parsed.events.journal, parsed.gpu.mps, parsed.admission) == ("off",) * 4
    urls = "record: {mode: off}\nsources:\n  - {id: a, type: av, url: x, record: off}\n"
    parsed = parse(f"{GOOD[: GOOD.index('sources')]}{urls}  - {{id: b, type: av, url: x, record: {{mode: off}}}}\n")
    assert [parsed.record.mode, *(source.recording.mode for source in parsed.sources)] == ["off"] * 3


def test_admission_and_lossless_exclude_each_other() -> None:
    text = "model: {path: m.onnx}\nsources: [{id: a, type: synthetic}]\nadmission: degrade\nboard: {mode: lossless}\n"
    with pytest.raises(ConfigError, match="admission: leaves frames out"):
        parse(text)


def test_a_journal_is_off_or_in_the_folder_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    for written, meant in (("off", "off"), ("auto", "auto"), ("events.sqlite", f"{tmp_path}/events.sqlite")):
        file.write_text(GOOD + f"events: {{journal: {written}}}\n")
        assert load(file).events.journal == meant
