"""What is around the code: the unit file, the documents' examples, the Makefile's promises."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from daemon.config.http import HttpConfig, TokenConfig
from daemon.config.load import load, load_bridge, load_page, parse
from daemon.config.root import BridgeFile
from daemon.errors import ConfigError
from daemon.http.access import read_tokens
from daemon.redact import Secret
from tests.support.booted import copy_sources
from tests.support.checkout import repository_of
from tests.support.daemon import ROOT, Lookout

UNITS = ("lookout.service", "lookout@.service")
PAGE, BRIDGE = "lookout-dashboard.service", "lookout-bridge.service"


@pytest.mark.needs("systemd")
@pytest.mark.parametrize("name", [*UNITS, PAGE, BRIDGE])
def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path, name: str) -> None:
    unit = (ROOT / "systemd" / name).read_text()
    file = tmp_path / name.replace("@", "@0")
    file.write_text(unit.replace("/opt/lookout/bin/lookout", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    newer = re.compile(r".*Unknown key .*'Restart(Steps|MaxDelaySec)' in section .*, ignoring.")  # before 254
    said = [line for line in done.stderr.splitlines() if not newer.fullmatch(line)]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize("name", [*UNITS, PAGE, BRIDGE])
def test_a_unit_is_started_again_for_ever_and_later_and_later(name: str) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "systemd" / name)
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert unit["Service"]["Restart"] == "on-failure"
    assert 0 < int(unit["Service"]["RestartSec"]) < int(unit["Service"]["RestartMaxDelaySec"])
    assert int(unit["Service"]["RestartSteps"]) > 1


@pytest.mark.needs("systemd")
@pytest.mark.parametrize("name", [UNITS[0], BRIDGE])
def test_the_unit_gives_little_away(name: str) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(ROOT / "systemd" / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", [*UNITS, PAGE, BRIDGE])
def test_a_unit_bounds_what_a_camera_can_have_it_take(name: str) -> None:
    unit = (ROOT / "systemd" / name).read_text()
    assert [key for key in ("MemoryHigh", "MemoryMax", "TasksMax") if not re.search(rf"^{key}=\w+", unit, re.M)] == []


def test_the_two_units_differ_in_what_they_must() -> None:
    first, second = ((ROOT / "systemd" / name).read_text().splitlines() for name in UNITS)
    changed = [line for line in second if line not in first]
    assert all("%i" in line or "number 0" in line for line in changed)
    assert len(first) + 2 == len(second)


@pytest.mark.parametrize("name", ["secret", "configmap", "statefulset", "service"])
def test_kubernetes_would_take_it(name: str) -> None:
    """By the API's own schemas, which know no field that is not theirs."""
    import kubernetes_validate

    file = ROOT / "deploy" / "kubernetes" / f"{name}.yaml"
    kubernetes_validate.validate(yaml.safe_load(file.read_text()), "1.30", strict=True)


def test_kubernetes_without_a_gpu_changes_what_is_there() -> None:
    """Each path of the patch is one of the StatefulSet's; nothing of a GPU is left."""
    (patch,) = yaml.safe_load((ROOT / "deploy/kubernetes-cpu/kustomization.yaml").read_text())["patches"]
    whole = yaml.safe_load((ROOT / "deploy/kubernetes/statefulset.yaml").read_text())
    for step in yaml.safe_load(patch["patch"]):
        *path, last = (part.replace("~1", "/") for part in step["path"].split("/")[1:])
        place = whole
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place[part]
        assert last in place
        if step["op"] == "remove":
            del place[last]
        else:
            place[last] = step["value"]
    assert "gpu" not in yaml.safe_dump(whole["spec"]["template"]).lower()


def test_kubernetes_with_a_bridge_adds_a_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the API's own schemas; the ports, the volumes and the configuration are ones that are there."""
    import kubernetes_validate

    folder = ROOT / "deploy/kubernetes-bridge"
    whole = yaml.safe_load((ROOT / "deploy/kubernetes/statefulset.yaml").read_text())["spec"]
    added = yaml.safe_load((folder / "statefulset.yaml").read_text())["spec"]["template"]["spec"]
    pod = whole["template"]["spec"]
    for key in ("containers", "volumes"):  # as kustomize merges them, by name
        assert not {row["name"] for row in pod[key]} & {row["name"] for row in added[key]}
        pod[key] += added[key]
    claims_of_all = yaml.safe_load((folder / "statefulset.yaml").read_text())["spec"]["volumeClaimTemplates"]
    assert claims_of_all[: len(whole["volumeClaimTemplates"])] == whole["volumeClaimTemplates"]  # replaced whole
    whole["volumeClaimTemplates"] = claims_of_all
    merged = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "lookout"}, "spec": whole}
    kubernetes_validate.validate(merged, "1.30", strict=True)
    (bridge,) = added["containers"]
    claims = {row["metadata"]["name"] for row in whole["volumeClaimTemplates"]}
    assert {row["name"] for row in bridge["volumeMounts"]} <= claims | {row["name"] for row in pod["volumes"]}

    for key, value in yaml.safe_load((ROOT / "deploy/kubernetes/secret.yaml").read_text())["stringData"].items():
        monkeypatch.setenv(key, value)
    file = tmp_path / "bridge.yaml"
    file.write_text(yaml.safe_load((folder / "configmap.yaml").read_text())["data"]["bridge.yaml"])
    config = load_bridge(file)
    assert isinstance(config, BridgeFile)
    assert config.bridge.port == bridge["ports"][0]["containerPort"]


def _manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((ROOT / "deploy").glob("kubernetes*/*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield path.relative_to(ROOT / "deploy").as_posix(), document


def test_a_changed_configuration_reaches_its_pod() -> None:
    """As it does not through `subPath`: a folder is mounted, and what runs reads the file in it."""
    seen = 0
    for name, document in _manifests():
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        for container in (*pod.get("containers", ()), *pod.get("initContainers", ())):
            mounts = {row["mountPath"]: row for row in container["volumeMounts"]}
            assert not [row for row in mounts.values() if "subPath" in row], name
            words = " ".join((*container.get("command", ()), *container.get("args", ())))
            (file,) = re.findall(r"-c (/etc\S+/(?:config|bridge).yaml)", words)
            assert str(Path(file).parent) in mounts, name
            seen += 1
    assert seen > 4


def test_placeholders_of_manifests_are_refused(tmp_path: Path) -> None:
    """Whoever applies them as they are gets one line, and no daemon that everybody may operate."""
    secrets = [document for _, document in _manifests() if document["kind"] == "Secret"]
    tokens = [secret["stringData"]["LOOKOUT_TOKEN"] for secret in secrets]
    assert len(tokens) > 1
    for token in tokens:
        with pytest.raises(ConfigError, match=r"the placeholder of an example.*openssl rand"):
            read_tokens(HttpConfig(token=Secret(token)))
    file = tmp_path / "token"
    file.write_text(f"{tokens[0].upper()}\n")
    with pytest.raises(ConfigError, match="the placeholder of an example"):
        read_tokens(HttpConfig(tokens=[TokenConfig("screen", token_file=file)]))


def test_what_has_ended_is_started_again() -> None:
    """In compose, and in each `docker run` that goes on."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert {name: row.get("restart") for name, row in services.items()} == dict.fromkeys(services, "unless-stopped")
    written = "".join((ROOT / name).read_text() for name in ("Dockerfile", "docs/operations.md", "README.md"))
    runs = re.findall(r"docker run .*", written)
    assert runs
    assert [line for line in runs if "--restart unless-stopped" not in line] == []


def test_no_install_without_dependencies_leaves_the_client_out() -> None:
    """Lock files have no `lookout-client`, and an index need not have it. Images have the script of backups, too."""
    text = (ROOT / "Dockerfile").read_text()
    lines = re.findall(r"pip install .*--no-deps (.*?) *\\?$", text, re.M)
    assert lines == ["./client ."] * len(re.findall(r"AS build-", text))
    assert text.count("cp deploy/backup.py /opt/lookout/share/lookout/") == len(lines)


def test_sources_are_copied_with_the_links_that_git_has(tmp_path: Path) -> None:
    """`client/lookout` is one, and without it the client's package is empty."""
    tree, to = tmp_path / "tree", tmp_path / "to"
    (tree / "client").mkdir(parents=True)
    (tree / "client/lookout").symlink_to("../lookout")
    (tree / "lookout").mkdir()
    (tree / "lookout/client.py").write_text("x = 1\n")
    copy_sources(repository_of(tree), to)
    assert (to / "client/lookout").readlink() == Path("../lookout")
    assert (to / "client/lookout/client.py").read_text() == "x = 1\n"


def test_compose_has_a_configuration_for_each_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOOKOUT_TOKEN", "only-for-trying-it-out")
    monkeypatch.setenv("LOOKOUT_PAGE_TOKEN", "only-for-trying-it-out")
    whole = yaml.safe_load((ROOT / "compose.yaml").read_text())
    for name, read in (("lookout", load), ("bridge", load_bridge), ("dashboard", load_page)):
        file = tmp_path / f"{name}.yaml"
        file.write_text(whole["configs"][name]["content"].replace("$$", "$"))
        read(file)
        assert {row["source"] for row in whole["services"][name]["configs"]} == {name}


def test_every_secret_of_kubernetes_is_named_where_one_reads_how_to_install() -> None:
    whole = (ROOT / "deploy/kubernetes/statefulset.yaml").read_text()
    made = yaml.safe_load((ROOT / "deploy/kubernetes/secret.yaml").read_text())["metadata"]["name"]
    volumes = yaml.safe_load(whole)["spec"]["template"]["spec"]["volumes"]
    asked = {row["secret"]["name"] for volume in volumes for row in volume.get("projected", {}).get("sources", [])}
    text = (ROOT / "docs" / "operations.md").read_text()
    assert asked
    assert [name for name in asked - {made} if f"create secret generic {name} " not in text] == []


def test_the_configuration_for_kubernetes_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = yaml.safe_load((ROOT / "deploy/kubernetes/secret.yaml").read_text())["stringData"]
    for key, value in secret.items():
        monkeypatch.setenv(key, value)
    text = yaml.safe_load((ROOT / "deploy/kubernetes/configmap.yaml").read_text())["data"]["config.yaml"]
    assert parse(text).http.enabled


@pytest.mark.needs("promtool")
def test_rules_and_panels_ask_for_figures_that_exist() -> None:
    subprocess.run(["promtool", "check", "rules", str(ROOT / "deploy/alerts.yaml")], check=True, capture_output=True)
    exposition = "".join(path.read_text() for path in (ROOT / "daemon").rglob("*exposition.py"))
    texts = [(ROOT / "deploy" / name).read_text() for name in ("alerts.yaml", "grafana.json")]
    assert json.loads(texts[1])["panels"]
    for name in {name for text in texts for name in re.findall(r"lookout_[a-z_]+", text)}:
        plain = re.sub(r"_(total|bucket|sum|count|info)$", "", name)
        assert f'"{plain}"' in exposition, name


@pytest.mark.needs("promtool")
@pytest.mark.parametrize(
    ("series", "minute", "fires"),
    [("0x30", 20, False), ("0 0 0 2x30", 3, True), ("0 0 0 2x30", 10, True), ("0 0 0 2x30", 25, False)],
    ids=["nothing is lost", "at once", "while it is recent", "no longer"],
)
def test_the_alert_for_lost_events_fires(tmp_path: Path, series: str, minute: int, fires: bool) -> None:
    """Prometheus evaluates the rule over samples of a minute each."""
    labels = {"instance": "host:9105", "severity": "warning"}
    summary = "The journal of host:9105 loses events: its disk may be full or slow"
    alerts = [_fired("LookoutLosesEvents", labels, summary)] if fires else []
    expected: dict[str, object] = {"eval_time": f"{minute}m", "alertname": "LookoutLosesEvents", "exp_alerts": alerts}
    _evaluate(tmp_path, {'lookout_journal_lost_events_total{instance="host:9105"}': series}, [expected])


def _fired(alert: str, labels: dict[str, str], summary: str) -> dict[str, object]:
    runbook = f"docs/runbooks.md#{alert.lower()}"
    return {"exp_labels": labels, "exp_annotations": {"summary": summary, "runbook": runbook}}


def _evaluate(folder: Path, series: dict[str, str], expected: list[dict[str, object]]) -> None:
    samples = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": samples, "alert_rule_test": expected}
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ROOT / "deploy/alerts.yaml")], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("promtool")
def test_the_alerts_of_recordings_fire(tmp_path: Path) -> None:
    """A store that is away, seconds that are missing though they were wanted, and a disk that others fill."""
    gap, free = "lookout_recording_gap_seconds_total", "lookout_recording_store_free_bytes"
    series = {
        'lookout_recording_store_up{store="nas", cause="store_away"}': "_x4 0x25",
        'lookout_recording_store_up{store="nas"}': "1x4 stale",
        f'{gap}{{store="main", source="door", cause="disk_slow"}}': "0x5 60x25",
        f'{gap}{{store="main", source="door", cause="no_event"}}': "0+60x30",
        f'{free}{{store="main"}}': "3x9 1x21",
        'lookout_recording_store_min_free_bytes{store="main"}': "2x30",
    }
    found: dict[str, tuple[int, int, dict[str, str], str]] = {
        "LookoutStoreIsNotWritten": (
            4, 6, {"store": "nas", "cause": "store_away", "severity": "critical"},
            "Nothing is recorded into nas of : store_away",
        ),
        "LookoutRecordsWithGaps": (
            5, 7, {"store": "main", "source": "door", "cause": "disk_slow", "severity": "warning"},
            "Seconds of door are not in main of : disk_slow",
        ),
        "LookoutStoreRunsFull": (
            18, 21, {"store": "main", "severity": "warning"},
            "The disk of main at  has less than min_free_gib: what fills it is no recording, or locked",
        ),
    }  # fmt: skip
    _evaluate(tmp_path, series, _before_and_after(found))


@pytest.mark.needs("promtool")
def test_the_alerts_of_the_bridge_fire(tmp_path: Path) -> None:
    """Each at the first minute and not before, also when the figures themselves are gone."""
    series = {
        'lookout_bridge_spool_up{instance="a"}': "1x10 _x30",
        'lookout_bridge_spool_up{instance="b"}': "1x4 0x36",
        'lookout_bridge_target_up{target="home", type="mqtt"}': "1x4 0x36",
        'lookout_bridge_target_up{target="lines", type="file"}': "1x40",
        'lookout_bridge_oldest_seconds{target="home"}': "0x4 0+60x36",
        'lookout_bridge_spool_bytes{instance="b"}': "1x19 8x20",
        'lookout_bridge_spool_limit_bytes{instance="b"}': "10x40",
        'lookout_bridge_dropped_total{target="hook", cause="refused"}': "0x9 2x30",
        'lookout_bridge_dropped_total{target="hook", cause="stale"}': "0+1x40",
        'lookout_bridge_feed_lost_total{daemon="hall"}': "0x9 3x30",
        'lookout_bridge_feed_up{daemon="hall", instance="b"}': "1x9 0x30",
    }
    found: dict[str, tuple[int, int, dict[str, str], str]] = {
        "LookoutBridgeFiguresAreMissing": (
            11, 18, {"instance": "a", "severity": "critical"},
            "The bridge at a gives no figures any more: does it run?",
        ),
        "LookoutBridgeTargetIsAway": (
            8, 11, {"target": "home", "type": "mqtt", "severity": "warning"},
            "home cannot be told anything by : its records wait, and the log says why",
        ),
        "LookoutBridgeIsLate": (
            24, 26, {"target": "home", "severity": "warning"}, "At  a record waits for home for 21m 0s",
        ),
        "LookoutBridgeSpoolGrows": (
            20, 23, {"instance": "b", "severity": "warning"},
            "The spool at b is nearly full: then the oldest records are dropped",
        ),
        "LookoutBridgeSpoolIsNotWritten": (
            4, 7, {"instance": "b", "severity": "critical"},
            "Nothing can be kept in the spool at b: its disk may be full",
        ),
        "LookoutBridgeDrops": (
            8, 12, {"target": "hook", "cause": "refused", "severity": "warning"},
            " drops records for hook: refused",
        ),
        "LookoutBridgeLosesEvents": (
            8, 12, {"daemon": "hall", "severity": "warning"},
            " has lost events of hall: they did not come, and no journal has them",
        ),
        "LookoutBridgeHearsNothing": (
            10, 13, {"daemon": "hall", "instance": "b", "severity": "warning"},
            "The bridge at b does not hear hall",
        ),
    }  # fmt: skip
    _evaluate(tmp_path, series, _before_and_after(found))


def _before_and_after(found: dict[str, tuple[int, int, dict[str, str], str]]) -> list[dict[str, object]]:
    """Of each alert: a minute at which it does not fire, one at which it does, its labels and its summary."""
    expected: list[dict[str, object]] = []
    for name, (before, after, labels, summary) in found.items():
        alert = _fired(name, labels, summary)
        expected.append({"eval_time": f"{before}m", "alertname": name, "exp_alerts": []})
        expected.append({"eval_time": f"{after}m", "alertname": name, "exp_alerts": [alert]})
    return expected


@pytest.mark.needs("promtool")
@pytest.mark.parametrize(
    ("alert", "series", "before", "after", "labels", "summary"),
    [
        (
            "LookoutIsNotWatched", {'up{job="lookout", instance="a"}': "1x9 stale"}, 13, 16, {"severity": "critical"},
            "Prometheus has no daemon of Lookout among its targets",
        ),
        (
            "LookoutsAreFewer",
            {'up{job="lookout", instance="a"}': "1x180", 'up{job="lookout", instance="b"}': "1x99 stale"},
            108, 112, {"severity": "warning"},
            "Prometheus had 2 daemons of Lookout among its targets an hour ago, and has fewer",
        ),
        (
            "LookoutHasNoFigures",
            {
                'up{job="lookout", instance="a"}': "1x40",
                'lookout_build_info{job="lookout", instance="a"}': "1x9 stale",
                'up{job="lookout", instance="b"}': "1x40",
                'lookout_build_info{job="lookout", instance="b"}': "1x40",
                'up{job="lookout-bridge", instance="c"}': "1x40",
            },
            11, 13, {"job": "lookout", "instance": "a", "severity": "critical"},
            "a answers, and its figures are not those of Lookout: is it the right port?",
        ),
        (
            "LookoutSourcesHaveNoFigures",
            {
                'lookout_build_info{job="lookout", instance="a"}': "1x40",
                'lookout_frames_captured_total{job="lookout", instance="a", source="door"}': "0+9x9 stale",
                'lookout_build_info{job="lookout", instance="b"}': "1x40",
                'lookout_fleet_member{job="lookout", instance="b"}': "1x40",
            },
            14, 16, {"job": "lookout", "instance": "a", "severity": "critical"}, "a works without a source",
        ),
        (
            "LookoutRecordingHasNoFigures",
            {
                'lookout_recording_store_min_free_bytes{job="l", instance="a", store="main"}': "1x40",
                'lookout_recording_store_up{job="l", instance="a", store="main", cause=""}': "1x40",
                'lookout_recording_store_min_free_bytes{job="l", instance="a", store="nas"}': "1x40",
                'lookout_recording_store_up{job="l", instance="a", store="nas", cause=""}': "1x9 stale",
            },
            14, 16, {"job": "l", "instance": "a", "store": "nas", "severity": "critical"},
            "Recording into nas of a is configured, and nothing says whether it works",
        ),
        (
            "LookoutBridgeHasNoFigures",
            {
                'up{job="lookout-bridge", instance="a"}': "1x40",
                'lookout_bridge_build_info{job="lookout-bridge", instance="a"}': "1x9 stale",
            },
            11, 13, {"job": "lookout-bridge", "instance": "a", "severity": "critical"},
            "a answers, and its figures are not those of a bridge: is it the right port?",
        ),
        (
            "LookoutBridgesAreFewer", {'up{job="lookout-bridge", instance="a"}': "1x99 stale"},
            108, 112, {"severity": "warning"}, "Prometheus had 1 bridges among its targets an hour ago, and has fewer",
        ),
        (
            "LookoutLosesTraces",
            {
                'lookout_traces_dropped_total{instance="a", cause="queue_full"}': "0x9 5x40",
                'lookout_traces_dropped_total{instance="a", cause="limit"}': "0+9x50",
            },
            9, 11, {"instance": "a", "cause": "queue_full", "severity": "warning"},
            "Traces of a do not reach the collector: queue_full",
        ),
        (
            "LookoutTracesAreRejected", {'lookout_trace_spans_rejected_total{instance="a"}': "0x9 5x40"},
            9, 11, {"instance": "a", "severity": "warning"}, "The collector of a rejects spans: the collector says why",
        ),
    ],
)  # fmt: skip
def test_an_alert_fires_for_what_is_missing(
    tmp_path: Path, alert: str, series: dict[str, str], before: int, after: int, labels: dict[str, str], summary: str
) -> None:
    """Not before its time; and not for others of which nothing is missing."""
    fired = _fired(alert, labels, summary)
    _evaluate(
        tmp_path,
        series,
        [
            {"eval_time": f"{before}m", "alertname": alert, "exp_alerts": []},
            {"eval_time": f"{after}m", "alertname": alert, "exp_alerts": [fired]},
        ],
    )


def test_an_alert_names_the_daemon_and_fires_for_it_alone(tmp_path: Path) -> None:
    """One of two daemons loses frames and is late. Together they would be under the limits."""
    series: dict[str, str] = {}
    for instance, dropped, late in (("a", "0+60x40", "0x40"), ("b", "0x40", "0+5000x40")):
        own = f'job="lookout", instance="{instance}"'
        series[f'lookout_frames_captured_total{{{own}, source="door"}}'] = (
            "0+600x40" if instance == "a" else "0+60000x40"
        )
        series[f'lookout_frames_dropped_total{{{own}, source="door", cause="superseded"}}'] = dropped
        for bound, count in (("0.1", late), ("1", "0+5000x40"), ("+Inf", "0+5000x40")):
            series[f'lookout_stage_seconds_bucket{{{own}, stage="total", le="{bound}"}}'] = count
    labels = {"job": "lookout", "instance": "a", "severity": "warning"}
    found = {
        "LookoutLosesFrames": (9, 20, labels, "a drops 1 frames/s, more than 5 %: lookout check says what is full"),
        "LookoutIsLate": (4, 20, labels, "At a p99 from captured to sent is 991ms"),
    }
    _evaluate(tmp_path, series, _before_and_after(found))


def _alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    """Under a heading of its name; each says what is seen, where to look, and what to do."""
    pages = re.split(r"^### ", (ROOT / "docs/runbooks.md").read_text(), flags=re.M)[1:]
    written = {page.partition("\n")[0]: page for page in pages}
    assert sorted(written) == sorted(alert["alert"] for alert in _alerts())
    for alert in _alerts():
        assert alert["annotations"]["runbook"] == f"docs/runbooks.md#{alert['alert'].lower()}"
        page = written[alert["alert"]]
        assert [word for word in ("Means", "Look", "Do") if f"**{word}.**" not in page] == [], alert["alert"]


def test_an_alert_says_where() -> None:
    """By its instance; those of a fleet by their job. What is not there can be named by no label."""
    nameless = {"LookoutIsNotWatched", "LookoutsAreFewer", "LookoutBridgesAreFewer"}
    silent = [
        alert["alert"]
        for alert in _alerts()
        if not re.search(r"\$labels\.(instance|job)", alert["annotations"]["summary"])
    ]
    assert set(silent) == nameless
    summed = [alert["alert"] for alert in _alerts() if re.search(r"\b(sum|max|count|avg)\(", alert["expr"])]
    assert set(summed) <= nameless  # no sum over all that Prometheus has


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_images_install_what_has_a_hash(name: str) -> None:
    """Every package that Lookout needs itself is in the lock file, by version and hash."""
    lock = (ROOT / "requirements" / f"{name}.lock").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    wanted = re.findall(
        r'^  "([A-Za-z0-9-]+)>=', project[project.index("dependencies") : project.index("[project.opt")], re.M
    )
    assert len(wanted) > 8
    for package in wanted:
        found = re.search(rf"^{package}==\S+(?: ; .+)? \\\n    --hash=sha256:", lock, re.M | re.I)
        assert found, package
    assert "://" not in lock  # whoever installs has an index of their own


@pytest.mark.parametrize("name", ["cpu", "gpu"])
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_a_lock_file_has_one_version_for_each_python(name: str, python: str) -> None:
    """That the project admits, and nothing that asks for another."""
    lines = (ROOT / "requirements" / f"{name}.lock").read_text().splitlines()
    rows = [Requirement(line.removesuffix(" \\")) for line in lines if re.match(r"[a-z0-9-]+==", line)]
    machine = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": "linux",
               "platform_machine": "x86_64", "implementation_name": "cpython"}  # fmt: skip
    chosen = Counter(row.name for row in rows if row.marker is None or row.marker.evaluate(machine))
    assert set(chosen.values()) == {1}
    assert {"av", "numpy", "pyzmq", "onnxruntime"} <= set(chosen)


def test_installed_and_removed(tmp_path: Path) -> None:
    """A configuration that is there stays."""
    for _ in range(2):
        own = [f"DESTDIR={tmp_path}", f"PYTHON={sys.executable}", f"MANUAL_PYTHON={sys.executable}"]
        quiet = ["make", "--silent", "-C", str(ROOT), *own]
        dry = subprocess.run([*quiet, "--dry-run", "install"], check=True, capture_output=True, text=True).stdout
        script = "\n".join(line for line in dry.splitlines() if "pip install" not in line and "-m venv" not in line)
        subprocess.run(["sh", "-ec", script], check=True, capture_output=True, cwd=ROOT)
        config = tmp_path / "etc/lookout/config.yaml"
        assert "sources" in config.read_text()
        config.write_text("sources: mine")
        subprocess.run(["sh", "-ec", script], check=True, capture_output=True, cwd=ROOT)
        assert config.read_text() == "sources: mine"
        assert (tmp_path / "etc/lookout/environment").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "etc/systemd/system/lookout@.service").exists()
        assert (tmp_path / "usr/local/bin/lookout").readlink() == Path("/opt/lookout/bin/lookout")
        assert (tmp_path / "etc/logrotate.d/lookout").exists()
        for unit in (*UNITS, PAGE):
            (named,) = re.findall(r"^Documentation=file:/(\S+)", (ROOT / "systemd" / unit).read_text(), re.M)
            assert (tmp_path / named).exists()
        subprocess.run([*quiet, "uninstall"], check=True, capture_output=True)
        left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
        assert left == {"etc/lookout/config.yaml", "etc/lookout/environment", "etc/lookout/models/demo.onnx"}
        assert config.read_text() == "sources: mine"
        config.unlink()


def test_the_ten_lines_of_the_wire_document_work(tmp_path: Path) -> None:
    """They stand in the document as they stand in the file, and they print what the daemon sees."""
    example = ROOT / "docs" / "examples" / "subscribe.py"
    for path in (example, example.with_suffix(".mjs")):
        assert path.read_text() in (ROOT / "docs" / "wire.md").read_text()
    with Lookout(tmp_path, {"sources": [{"id": "street", "type": "synthetic"}]}) as lookout:
        reader = subprocess.Popen([sys.executable, str(example), lookout.endpoint], stdout=subprocess.PIPE, text=True)
        assert reader.stdout is not None
        source, seq, *labels = reader.stdout.readline().split()
        reader.kill()
        reader.communicate()
    assert source == "street"
    assert seq.isdigit()
    assert labels
