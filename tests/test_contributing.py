"""What contributors and maintainers are given: CONTRIBUTING.md, forms for issues, the workflow of a release."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.needs import NEEDS, commands

ROOT = Path(__file__).resolve().parents[1]
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
_FIELDS = {"input", "textarea", "dropdown", "checkboxes"}


def _name(path: Path) -> str:
    return path.name


def _parsed(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def _targets(text: str) -> set[str]:
    """What a text has make do, in a line of its own or as code in a sentence."""
    return set(re.findall(r"(?:^|`)(?:sudo )?make ([a-z-]+)", text, re.MULTILINE))


def _unknown(targets: set[str]) -> list[str]:
    """Of these, what the Makefile has no rule for, or cannot do."""
    dry = ["make", "--dry-run", "--silent", "-C", str(ROOT)]
    return [
        name
        for name in sorted(targets)
        if subprocess.run([*dry, name], capture_output=True, check=False, timeout=60).returncode != 0
    ]


def test_there_are_forms_and_a_workflow() -> None:
    assert {path.stem for path in FORMS} == {"bug", "feature"}
    assert {path.stem for path in WORKFLOWS} == {"release"}
    assert "- [ ] " in (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text()
    assert set(_parsed(ROOT / ".github/ISSUE_TEMPLATE/config.yml")) == {"blank_issues_enabled"}


@pytest.mark.parametrize("path", FORMS, ids=_name)
def test_a_form_is_one(path: Path) -> None:
    """By GitHub's rules for issue forms; one that breaks them is not shown at all."""
    form = _parsed(path)
    assert set(form) == {"name", "description", "labels", "body"}
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in asked} <= _FIELDS
    assert len({part["id"] for part in asked}) == len({part["attributes"]["label"] for part in asked}) == len(asked)
    assert all(re.fullmatch(r"[a-z-]+", part["id"]) for part in asked)
    assert any(part.get("validations", {}).get("required") for part in asked)
    for part in asked:
        assert set(part) <= {"type", "id", "attributes", "validations"}
        assert set(part["attributes"]) <= {"label", "description", "placeholder", "value", "render", "options"}
        assert ("options" in part["attributes"]) == (part["type"] in ("dropdown", "checkboxes"))
    assert all(part["attributes"]["value"] for part in form["body"] if part not in asked)


def _steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=_name)
def test_a_workflow_is_started_by_hand_and_may_do_little(path: Path) -> None:
    workflow = _parsed(path)
    assert set(workflow[True]) == {"workflow_dispatch"}  # YAML 1.1 reads `on` as true
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        assert job["timeout-minutes"] <= 60
        assert re.fullmatch(r"ubuntu-\d\d\.04", job["runs-on"])
    actions = [step for step in _steps(workflow) if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+\.\d+\.\d+", step["uses"]) for step in actions)
    checkouts = [step for step in actions if step["uses"].startswith("actions/checkout")]
    assert len(checkouts) == len(workflow["jobs"])
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("path", WORKFLOWS, ids=_name)
def test_a_workflow_runs_what_is_there(path: Path) -> None:
    """Commands are ones that the shell takes, and name nothing from outside as it was written."""
    commands = [step["run"] for step in _steps(_parsed(path)) if "run" in step]
    assert commands
    for command in commands:
        assert "${{" not in command  # what is asked for comes by the environment, or it would be a part of the script
        subprocess.run(["bash", "-n"], input=command, text=True, check=True, capture_output=True)
    targets = _targets("\n".join(commands))
    assert {"dist", "sbom"} <= targets
    assert _unknown(targets) == []
    stages = set(re.findall(r"--target (\w+)", "\n".join(commands)))
    assert stages <= set(re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))


def test_the_version_that_a_release_asks_for_is_found_and_another_is_not(tmp_path: Path) -> None:
    steps = _steps(_parsed(ROOT / ".github/workflows/release.yml"))
    (command,) = [step["run"] for step in steps if "VERSION" in step.get("env", {})]
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.20.3"\n')
    for version, code in (("1.20.3", 0), ("1.20", 1), ("1.20.4", 1), ("1.2..3", 1)):
        done = subprocess.run(["bash", "-ec", command], cwd=tmp_path, env={"VERSION": version, "PATH": "/usr/bin:/bin"},
                              capture_output=True, check=False)  # fmt: skip
        assert done.returncode == code, version


def test_make_does_what_the_guide_and_the_makefile_s_head_name() -> None:
    head = (ROOT / "Makefile").read_text().partition("\n\n")[0]
    named = _targets("\n".join(re.findall(r"^# (make [a-z-]+)", head, re.MULTILINE)))
    assert len(named) > 15
    assert _unknown(named | _targets(GUIDE)) == []
    assert _unknown({"no-such-target"}) == ["no-such-target"]


def test_the_guide_and_ci_name_what_tests_need() -> None:
    apt, pip = commands(NEEDS.keys() - {"firefox-esr"})  # which only `make test-long` wants
    assert f"\nsudo {apt}\n" in GUIDE.replace(" \\\n ", "")
    assert "\n.venv/bin/python " + pip.partition(" ")[2] in GUIDE.replace(" \\\n ", "")
    script = (ROOT / ".ci" / "run").read_text()
    (packages,) = re.findall(r'^packages="([^"]*)"', script, re.MULTILINE)
    assert {*packages.split()} == {*apt.split()[3:], "git", "python3-venv"}
    assert all(requirement in script for requirement in pip.split()[5:])


@pytest.mark.parametrize("forbidden", [False, True], ids=["at a developer's", "in CI"])
def test_what_is_not_here_is_named_with_the_tests_that_wait_for_it(forbidden: bool, tmp_path: Path) -> None:
    test = "tests/integration/test_packaging.py::test_rules_and_panels_ask_for_figures_that_exist"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    environment = {key: value for key, value in os.environ.items() if key != "LOOKOUT_FORBID_SKIP"}
    environment |= {"PATH": str(tmp_path), **({"LOOKOUT_FORBID_SKIP": "1"} if forbidden else {})}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == int(forbidden), done.stdout
    if forbidden:
        assert "may not be skipped: promtool is not here: prometheus\n" in done.stdout
    else:
        expected = "    1 test waits for promtool: prometheus\napt install --no-install-recommends prometheus\n"
        assert expected in done.stdout


def test_the_guide_s_walk_misses_no_package() -> None:
    packages = {path.parent.name for path in (ROOT / "daemon").glob("*/__init__.py")}
    packages |= {"detectors", "calibration"}
    assert packages <= set(re.findall(r"`(\w+)/`", GUIDE))


@pytest.mark.parametrize("path", re.findall(r"`((?:daemon|tests|deploy)/[\w/.]+)`", GUIDE))
def test_a_path_that_the_guide_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()
