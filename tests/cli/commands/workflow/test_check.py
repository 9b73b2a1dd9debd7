"""Tests for `raincheck workflow check` and `graph`: contents, faults and drawings."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.cli.terminal import run
from tests.support.cli.workflow_server import workflow_text, write_flows

pytestmark = pytest.mark.usefixtures("folder")

FAULTY = """
raincheck: 1
workflows:
  release:
    steps:
      - id: build
        run: [make]
        set: 1
      - id: publish
        needs: [bild]
        set: 1
  "2nd":
    steps:
      - id: one
        set: "{{ nope }}"
"""


def test_check_lists_the_workflows_of_a_valid_file() -> None:
    write_flows()
    done = run("workflow", "check", "flows.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "flows.yaml: 4 workflows, no faults"
    assert lines[1].startswith("  release (version ")
    assert lines[1].endswith(", takes tag, copies): Release a version.")
    assert lines[2].endswith("takes nothing)")


def test_check_json_describes_the_workflows() -> None:
    write_flows()
    reported = json.loads(run("workflow", "check", "flows.yaml", "--json").stdout)
    assert reported["faults"] == []
    release = reported["workflows"][0]
    assert (release["name"], release["description"]) == ("release", "Release a version.")
    assert set(release["input"]["properties"]) == {"tag", "copies"}
    assert release["unsafe"] == []


UNSAFE = """
raincheck: 1
workflows:
  release:
    input: {x: {type: string}}
    steps:
      - {id: build, run: {argv: [sh, -c, "echo {{ input.x }}"], unsafe: true}}
      - {id: publish, set: 1}
"""


def test_check_lists_unsafe_steps() -> None:
    write_flows(UNSAFE)
    assert run("workflow", "check", "flows.yaml").stdout.splitlines()[2:] == ["    unsafe: build"]
    reported = json.loads(run("workflow", "check", "flows.yaml", "--json").stdout)
    assert reported["workflows"][0]["unsafe"] == ["build"]


def test_each_fault_is_a_line_with_file_and_line() -> None:
    write_flows(FAULTY)
    done = run("workflow", "check", "flows.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    *faults, last = done.stderr.splitlines()
    assert len(faults) >= 2
    assert all(line.startswith("flows.yaml:") and line.split(":")[1].isdigit() for line in faults)
    assert any(line.startswith("flows.yaml:6: workflows.release.steps.build: ") for line in faults)
    assert last == f"raincheck: {len(faults)} faults: fix them, then try again"
    reported = json.loads(run("workflow", "check", "flows.yaml", "--json").stdout)
    assert [f"{one['file']}:{one['line']}: {one['where']}: {one['message']}" for one in reported["faults"]] == faults


@pytest.mark.parametrize("words", [["serve"], ["worker"], ["tools"]])
def test_serve_reports_the_same_faults(words: list[str]) -> None:
    write_flows(FAULTY)
    done = run(*words, "flows.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[:-1] == run("workflow", "check", "flows.yaml").stderr.splitlines()[:-1]


@pytest.mark.parametrize("words", [["check"], ["graph"], ["run"]])
def test_a_missing_file_is_reported(words: list[str]) -> None:
    done = run("workflow", *words, "nope.yaml", *(["it"] if words == ["run"] else []))
    assert done.returncode == 2
    assert "there is no file nope.yaml" in done.stderr


def test_a_folder_includes_all_its_files() -> None:
    Path("flows").mkdir()
    write_flows(workflow_text("one"), "flows/one.yaml")
    write_flows(workflow_text("two"), "flows/two.yml")
    Path("flows/notes.txt").write_text("nothing")
    assert run("workflow", "check", "flows").stdout.startswith("flows: 2 workflows, no faults\n  one ")


@pytest.mark.cold
def test_without_the_extra_the_error_says_what_to_install() -> None:
    write_flows()
    # In a process of its own: modules that are imported twice leave this one with two copies.
    script = "import sys; sys.modules['yaml'] = None; from raincheck.cli import main; main()"
    command = [sys.executable, "-c", script, "workflow", "check", "flows.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'raincheck[workflows]'" in done.stderr


def test_a_graph_is_mermaid_text_of_one_workflow_or_of_all() -> None:
    write_flows()
    one = run("workflow", "graph", "flows.yaml", "release").stdout
    assert one.startswith("flowchart TD\n")
    assert "n1 --> n2" in one
    every = run("workflow", "graph", "flows.yaml").stdout
    assert every.count("flowchart TD") == 4
    assert every.startswith("%% release\n")
    reported = json.loads(run("workflow", "graph", "flows.yaml", "--format", "svg", "--json").stdout)
    assert set(reported) == {"release", "confirm", "hold", "fail"}


def test_a_drawing_is_written_to_the_output_file() -> None:
    write_flows()
    done = run("workflow", "graph", "flows.yaml", "fail", "--format", "svg", "--output", "fail.svg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "raincheck: wrote fail.svg\n")
    words = [element.text for element in ElementTree.parse("fail.svg").iter() if element.text]  # noqa: S314 - our own
    assert {"first", "beside", "second", "last"} <= set(words)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nope"], "flows.yaml has no workflow 'nope': its workflows are confirm, fail, hold, release"),
        (["--format", "svg"], "an SVG shows one workflow, but flows.yaml has several: name one of confirm"),
        (["fail", "--output", "nowhere/it"], "nowhere/it can't be written (No such file or directory)"),
    ],
)
def test_drawing_errors_are_reported(words: list[str], why: str) -> None:
    write_flows()
    done = run("workflow", "graph", "flows.yaml", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
