"""The manifests of a fleet on Kubernetes: the API's schemas take them, and they fit each other."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from daemon.config.load import parse
from tests.support.daemon import ROOT

FOLDER = ROOT / "deploy" / "kubernetes-fleet"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())


def _documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def _one(kind: str, name: str = "lookout-fleet") -> dict[str, Any]:
    every = [document for file in KUSTOMIZATION["resources"] for document in _documents(file)]
    (found,) = (row for row in every if row["kind"] == kind and row["metadata"]["name"] == name)
    return found


def test_every_file_is_applied() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == {*KUSTOMIZATION["resources"]}


@pytest.mark.parametrize("name", [name for name in KUSTOMIZATION["resources"] if name != "podmonitor.yaml"])
def test_kubernetes_would_take_it(name: str) -> None:
    """By the API's own schemas, which know no field that is not theirs."""
    import kubernetes_validate

    for document in _documents(name):
        kubernetes_validate.validate(document, "1.30", strict=True)


def test_its_configuration_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in _one("Secret")["stringData"].items():
        monkeypatch.setenv(key, value)
    config = parse(_one("ConfigMap")["data"]["config.yaml"])
    assert config.fleet.coordinator == "kubernetes://"
    rows = yaml.safe_load(_one("ConfigMap", "lookout-fleet-sources")["data"]["sources.yaml"])["sources"]
    plain = [{key: value for key, value in row.items() if key != "fleet"} for row in rows]
    assert len(parse(yaml.safe_dump({"model": {"path": "a.onnx"}, "sources": plain})).sources) == len(rows)


def test_names_and_labels_fit() -> None:
    stateful, labels = _one("StatefulSet"), {"app.kubernetes.io/name": "lookout-fleet"}
    pod = stateful["spec"]["template"]
    assert pod["metadata"]["labels"] == labels
    for kind in ("Service", "PodDisruptionBudget", "PodMonitor"):
        selector = _one(kind)["spec"]["selector"]
        assert selector.get("matchLabels", selector) == labels
    assert stateful["spec"]["serviceName"] == _one("Service")["metadata"]["name"]
    job = _one("Job", "lookout-fleet-sources")["spec"]["template"]["spec"]
    for spec in (pod["spec"], job):
        assert spec["serviceAccountName"] == _one("ServiceAccount")["metadata"]["name"]
        assert spec["automountServiceAccountToken"]
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            assert {row["name"] for row in container["volumeMounts"]} <= {
                row["name"] for row in (*spec["volumes"], *({"name": "data"},))
            }
    assert _one("RoleBinding")["roleRef"]["name"] == _one("Role")["metadata"]["name"]


def test_a_pod_has_time_to_drain() -> None:
    spec = _one("StatefulSet")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    command = container["lifecycle"]["preStop"]["exec"]["command"][-1]
    found = re.search(r"--wait --timeout (\d+)$", command)
    assert found
    assert int(found[1]) + 5 + 10 <= spec["terminationGracePeriodSeconds"]
    assert '"$(hostname)/gpu0"' in command
    assert '"$(hostname)/gpu0"' in spec["initContainers"][0]["command"][-1]
