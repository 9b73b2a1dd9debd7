"""Definitions that were kept: which are taken, and what they may still reach."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from raincheck.core.payload import Json, encode
from raincheck.core.records import Tool
from raincheck.engine import Engine, Toolbox
from raincheck.engine.tool import TaskTool
from raincheck.engine.toolbox import sync_definitions
from raincheck.stores.base import Store
from raincheck.workflows import InvalidWorkflow
from raincheck.workflows.load import restore_definition
from raincheck.workflows.pipelines.pipeline import Pipeline
from tests.support.workflows.harness import QUICK, Workshop

STEPS: Json = {"steps": [{"id": "a", "set": 1}]}


def kept_in(workshop: Workshop, text: str) -> bytes:
    workshop.write(text)
    definition = workshop.load().definitions["flow"].tool().definition
    assert definition is not None
    return definition


@pytest.mark.parametrize(
    "definition",
    [
        b"junk",
        b"\x01sealed",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"v":2}',
        encode({"file": 5, "said": {"raincheck": 1, "workflows": {"a": STEPS}}}),
        encode({"file": "/a\0b", "said": {"raincheck": 1, "workflows": {"a": STEPS}}}),
        encode({"file": "x.yaml", "said": {"raincheck": 1, "workflows": {"a": STEPS}}}),
        encode({"file": "/nowhere/x.yaml", "said": 5}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 1, "workflows": {}}}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 1, "workflows": [1]}}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 1, "workflows": {"a": 1}}}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 1, "workflows": {"a": STEPS, "b": STEPS}}}),
        encode({"file": "/nowhere/x.yaml", "said": {"raincheck": 7, "workflows": {"a": STEPS}}}),
    ],
)
def test_what_is_no_definition_is_a_fault(definition: bytes) -> None:
    with pytest.raises(InvalidWorkflow):
        restore_definition(definition)


class _Kept:
    """A store that needs one definition."""

    def __init__(self, definition: bytes) -> None:
        self._definition = definition

    async def save_definitions(self, *_: object) -> dict[Tool, bytes]:
        return {Tool("flow", "1"): self._definition}


def failing(_: bytes) -> TaskTool:
    raise RuntimeError("nobody thought of this")


def another(_: bytes) -> TaskTool:
    return TaskTool(asyncio.sleep, "flow", "2")


@pytest.mark.anyio
@pytest.mark.parametrize("rebuild", [failing, another])
async def test_what_was_kept_never_stops_a_start(caplog: pytest.LogCaptureFixture, rebuild: Any) -> None:
    toolbox = Toolbox()
    toolbox.build_from_definition = rebuild
    await sync_definitions(cast("Store", _Kept(b"{}")), "default", toolbox)
    assert "tasks of 'flow' in version '1' have to wait" in caplog.text
    assert not list(toolbox), "least of all in the place of another"


def surroundings_of(definition: bytes) -> Any:
    made = restore_definition(definition)
    assert isinstance(made, Pipeline)
    return made.permissions


THEN = """
allow: {hosts: [a, b, 'c:1', 'd:1', e], folders: [/opt/x, /opt/y/z, /opt/v], env: [ONE, TWO]}
servers: {same: {command: [ls]}, other: {command: [ls]}, gone: {command: [ls]}}
workflows: {flow: {steps: [{id: a, set: 1}]}}
"""
NOW = """
allow: {hosts: [A, c, 'd:2', 'e:5', f], folders: [/opt/x/deeper, /opt/y, /opt/w], env: [TWO, THREE]}
servers: {same: {command: [ls]}, other: {command: [cat]}}
workflows: {flow: {steps: [{id: a, set: 2}]}}
"""


def test_what_a_file_does_not_allow_any_more_is_not_allowed_to_what_was_kept(workshop: Workshop) -> None:
    definition = kept_in(workshop, THEN)
    workshop.write(NOW)
    found = surroundings_of(definition)
    assert found.hosts == {"a", "c:1", "e:5"}
    assert set(found.folders) == {Path("/opt/x/deeper"), Path("/opt/y/z")}
    assert found.env == {"TWO"}
    assert set(found.servers) == {"same"}
    assert restore_definition(definition).tool().definition == definition, "what is allowed again is there again"


def test_of_a_file_that_is_gone_what_was_kept_stands(workshop: Workshop) -> None:
    definition = kept_in(workshop, THEN)
    workshop.file.unlink()
    assert surroundings_of(definition).hosts == {"a", "b", "c:1", "d:1", "e"}


@pytest.mark.parametrize("now", ["allow: [", "- 1", "allow: {hosts: 5}\nworkflows: {a: {steps: []}}", None])
def test_of_a_file_that_can_not_be_read_nothing_is_allowed(workshop: Workshop, now: str | None) -> None:
    definition = kept_in(workshop, THEN)
    workshop.file.unlink()
    if now is None:
        workshop.file.mkdir()
    else:
        workshop.write(now)
    with pytest.raises(InvalidWorkflow):
        restore_definition(definition)


async def serving(workshop: Workshop, text: str) -> Engine:
    """An engine that keeps definitions, and goes on with those that were kept."""
    await asyncio.to_thread(workshop.write, text)
    toolbox = Toolbox()
    for definition in (await asyncio.to_thread(workshop.load)).definitions.values():
        toolbox.add(definition.tool())
    toolbox.build_from_definition = lambda definition: restore_definition(definition).tool()
    return Engine(workshop.store, toolbox, settings=QUICK)


@pytest.mark.anyio
async def test_a_task_that_waits_does_not_reach_a_host_that_was_taken_back(workshop: Workshop) -> None:
    text = """
    allow: {hosts: [127.0.0.1]}
    workflows:
      flow:
        input: {h: {type: string}}
        steps: [{id: s, ask: {message: Go on?}}, {id: get, http: {url: "http://{{ input.h }}/"}}]
    """
    await workshop.store.open()
    async with await serving(workshop, text) as engine:
        task = await engine.submit("flow", {"h": "127.0.0.1:9"})
        await engine.wait(task.id, until=lambda one: one.open_inputs == 1)
    changed = text.replace("[127.0.0.1]", "[example.org]").replace("Go on?", "Really?")
    async with await serving(workshop, changed) as engine:
        await engine.answer(task.id, {"s-0": {"action": "accept", "content": {}}})
        ended = await engine.wait(task.id)
    assert b"host '127.0.0.1:9' is not allowed" in (ended.outcome or b"")
