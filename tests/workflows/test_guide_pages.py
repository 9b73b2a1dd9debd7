"""The workflows and programs in the docs about workflows work as shown."""

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from raincheck.core.lifecycle import Phase
from raincheck.core.values import Json
from raincheck.workflows import load_workflows
from raincheck.workflows.actions import run
from tests.support import ROOT
from tests.support.workflows.harness import WorkflowHarness, result_of

DOCS = ROOT / "docs"
PAGES = ("howto/write-workflows.md", "reference/workflows.md", "concepts/workflows.md")
GUIDE = (DOCS / PAGES[0]).read_text(encoding="utf-8")
FILES = {
    str(re.findall(r"^  (\w+):$", text, re.MULTILINE)[0]): str(text)
    for text in re.findall(r"^```yaml\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
}


RULE = (DOCS / "concepts/values-in-commands.md").read_text(encoding="utf-8")


def test_every_command_that_the_rule_for_values_recommends_is_valid(
    workflow_harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_there(*_: object) -> bool:
        return True

    monkeypatch.setattr(run, "is_command", is_there)
    (inputs,) = re.findall(r"^```yaml\n(.*?)^```$", RULE, re.DOTALL | re.MULTILINE)
    rows = [line for line in RULE.splitlines() if line.startswith("| ")][2:]
    commands = [text.replace("\\|", "|") for row in rows for text in re.findall(r"`(run: .*?[]}])`", row)]
    assert len(commands) == len(rows) + 1
    steps = [{"id": f"s{number}", **yaml.safe_load(command)} for number, command in enumerate(commands)]
    workflow_harness.write(yaml.safe_dump({"workflows": {"flow": {**yaml.safe_load(inputs), "steps": steps}}}))
    assert list(workflow_harness.load().definitions) == ["flow"]


@pytest.mark.parametrize("name", FILES)
def test_the_files_of_the_guide_are_valid(name: str, workflow_harness: WorkflowHarness) -> None:
    assert list(load_workflows(workflow_harness.write(FILES[name])).definitions) == [name]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("report", {"texts": ["a b", "c"]}, {"title": "Words", "words": [2, 1]}),
        ("build", {}, "tested and compiled"),
        ("fetch", {"pages": [1, 2, 3]}, {"pages": 3, "told": "skipped"}),
        ("fetch", {"pages": [], "notify": True}, {"pages": 0, "told": "completed"}),
    ],
)
async def test_a_pipeline_of_the_guide_has_the_shown_result(
    name: str, arguments: dict[str, Json], result: Json, workflow_harness: WorkflowHarness
) -> None:
    assert await workflow_harness.run(FILES[name], name, **arguments) == result


@pytest.mark.anyio
async def test_a_failing_pipeline_of_the_guide_has_the_shown_error(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure(FILES["publish"], "publish")
    assert f"```text\n{message}\n```" in GUIDE


@pytest.mark.anyio
async def test_the_question_of_the_guide_can_be_answered(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running(FILES["deploy"]) as engine:
        task = await engine.submit("deploy", {"version": "2"})
        view = await engine.wait(task.id, until=lambda one: one.open_inputs == 1)
        (question,) = view.inputs
        assert b"Deploy 2?" in question.request
        await engine.answer(task.id, {question.key: {"action": "accept", "content": {"yes_do": True}}})
        result = await engine.result(task.id)
    assert isinstance(result, dict)
    assert result["stdout"] == "deployed 2"


@pytest.mark.anyio
async def test_the_order_of_the_guide_reaches_its_last_state(workflow_harness: WorkflowHarness) -> None:
    async with workflow_harness.running(FILES["order"]) as engine:
        task = await engine.submit("order", {"number": "A-17", "amount": 20})
        assert task.subject == "A-17"
        await engine.instances.transition(task.id, "pay", data={"paid": 20})
        await engine.wait(task.id, until=lambda one: one.state is not None and one.state.name == "packed")
        await engine.instances.transition(task.id, "deliver")
        view = await engine.wait(task.id)
    assert view.task.phase is Phase.COMPLETED
    assert result_of(view) == {"number": "A-17", "label": "label of A-17"}


class TestPrograms:
    """The Python on the pages."""

    @pytest.fixture(autouse=True)
    def nothing_blocks_the_event_loop(self) -> None:
        """Not here: a snippet is a whole program."""

    @pytest.mark.parametrize("page", PAGES)
    def test_what_they_print_is_what_the_page_says(
        self, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        text = (DOCS / page).read_text(encoding="utf-8")
        names: dict[str, Any] = {"__name__": "__main__"}
        for program, _, shown in re.findall(
            r"^```python\n(.*?)^```$(\n\n```text\n(.*?)^```$)?", text, re.DOTALL | re.MULTILINE
        ):
            code = compile(program, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)  # noqa: S307 - our own docs
            if inspect.iscoroutine(running):
                asyncio.run(running)
            assert capsys.readouterr().out == shown
