"""Invalid tools and settings are rejected when they are created."""

import asyncio
import functools
import math
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

import raincheck.engine
from raincheck.core.records import Tool
from raincheck.engine import Engine, Settings, SyncTaskContext, TaskContext, Toolbox
from raincheck.engine.tool import ExecutionMode, make_tool
from raincheck.errors import ConfigurationError, InvalidValue, UnknownTool


async def body(task: TaskContext) -> None: ...


def plain(task: SyncTaskContext) -> None: ...


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"name": "\0"}, r"a tool's name '\\x00' has a NUL"),
        ({"name": "x" * 513}, "a tool's name has 513 characters, and 512 are allowed"),
        ({"version": ""}, "a version of tool 'body' must not be empty"),
        ({"continues": ("1", "\ud800")}, "a version of tool 'body' .* has a NUL or a lone surrogate"),
        ({"attempt_timeout": 0}, "tool 'body': attempt_timeout is from 0.001 to 31622400 seconds, not 0"),
        ({"attempt_timeout": math.nan}, "attempt_timeout is from 0.001 to 31622400 seconds, not nan"),
        ({"timeout": math.inf}, "timeout is from 0.001 to 31622400 seconds, not inf"),
        ({"timeout": 31_622_401}, "timeout is from 0.001 to 31622400 seconds, not 31622401"),
        ({"grace": -1}, "grace is from 0.001 to 31622400 seconds, not -1"),
        ({"priority": 101}, "tool 'body': priority is a whole number from -100 to 100, not 101"),
        ({"priority": -101}, "priority is a whole number from -100 to 100, not -101"),
        ({"concurrency": 0}, "tool 'body': concurrency is a whole number from 1 to 1000, not 0"),
        ({"version": 2}, "tool 'body': version is a str, not 2"),
        ({"continues": "1"}, "the older versions whose tasks it can resume, is a tuple, not '1'"),
        ({"retry": 3}, "tool 'body': retry is a RetryPolicy, not 3"),
        ({"retry_on": ("x",)}, "tool 'body': retry_on is a tuple of types of errors"),
        ({"retry_on": ValueError}, "tool 'body': retry_on is a tuple of types of errors"),
        ({"retention": timedelta(days=1)}, "tool 'body': retention is a Retention"),
        ({"timeout": timedelta(days=1)}, "tool 'body': timeout is a number of seconds, not"),
        ({"concurrency": 1.5}, "tool 'body': concurrency is a whole number from 1 to 1000, not 1.5"),
        ({"isolation": "thread"}, "tool 'body': isolation is \"process\" or None, not 'thread'"),
    ],
)
def test_a_tool_with_invalid_settings_is_rejected(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        make_tool(body, **settings)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"concurrency": 0}, "concurrency is a whole number from 1 to 1000, not 0"),
        ({"concurrency": 1_001}, "concurrency is a whole number from 1 to 1000, not 1001"),
        ({"lease": 0}, "lease is from 0.01 to 86400 seconds, not 0"),
        ({"lease": 86_401}, "lease is from 0.01 to 86400 seconds, not 86401"),
        ({"park_after": -0.1}, "park_after is from 0 to 86400 seconds, not -0.1"),
        ({"grace": math.inf}, "grace is from 0 to 86400 seconds, not inf"),
        ({"progress_interval": math.nan}, "progress_interval is from 0 to 86400 seconds, not nan"),
        ({"poll_interval": 0}, "poll_interval is from 0.01 to 86400 seconds, not 0"),
        ({"concurrency": 1.5}, "concurrency is a whole number from 1 to 1000, not 1.5"),
        ({"lease": "15"}, "lease is a number of seconds, not '15'"),
        ({"limits": 3}, "limits is a Limits, not 3"),
        ({"quota": None}, "quota is a Quota, not None"),
        ({"prune_interval": 0}, "prune_interval is from 0.01 to 86400 seconds, not 0"),
    ],
)
def test_invalid_engine_settings_are_rejected(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Settings(**settings)


def test_a_body_that_another_process_can_not_find_is_rejected() -> None:
    async def inner() -> None: ...

    with pytest.raises(ConfigurationError, match=r"another process can't find .*inner.*top level"):
        make_tool(inner, isolation="process")
    assert make_tool(body, isolation="process").execution_mode is ExecutionMode.PROCESS


def test_a_body_without_a_name_must_be_given_one() -> None:
    nameless = functools.partial(body)
    with pytest.raises(ConfigurationError, match="a tool's name must not be empty"):
        make_tool(nameless)
    assert make_tool(nameless, "named").is_async


def test_a_context_of_the_wrong_type_is_rejected_with_the_right_type() -> None:
    async def for_threads(task: SyncTaskContext) -> None: ...

    def for_the_loop(task: TaskContext) -> None: ...

    async def twice(one: TaskContext, other: TaskContext) -> None: ...

    with pytest.raises(
        ConfigurationError,
        match="tool 'for_threads' is a coroutine, but its parameter 'task' is a SyncTaskContext: make it a TaskContext",
    ):
        make_tool(for_threads)
    with pytest.raises(ConfigurationError, match=r"is a plain function, .* a TaskContext: make it a SyncTaskContext"):
        make_tool(for_the_loop)
    with pytest.raises(ConfigurationError, match="takes its context twice, as one and other: remove one of them"):
        make_tool(twice)


def test_a_context_is_found_by_its_annotation_however_it_is_written() -> None:
    async def in_a_string(task: "TaskContext") -> None: ...

    async def in_a_string_with_its_module(work: "raincheck.engine.TaskContext") -> None: ...

    async def of_something_that_is_not_there(task: "TaskContext", other: "Unknown") -> None: ...  # type: ignore[name-defined] # noqa: F821

    async def without() -> None: ...

    async def by_keyword(*, task: TaskContext) -> None: ...

    async def quoted_twice(task: TaskContext) -> None: ...

    quoted_twice.__annotations__["task"] = "'TaskContext'"  # what `from __future__ import annotations` makes of quotes

    assert make_tool(in_a_string).context_parameter == "task"
    assert make_tool(in_a_string_with_its_module).context_parameter == "work"
    assert make_tool(cast("Any", of_something_that_is_not_there)).context_parameter == "task"
    assert make_tool(without).context_parameter is None
    assert make_tool(by_keyword).context_parameter == "task"
    assert make_tool(quoted_twice).context_parameter == "task"
    assert raincheck.engine.TaskContext is TaskContext


def test_the_decorator_returns_the_function_with_or_without_parentheses() -> None:
    toolbox = Toolbox()

    @toolbox.tool
    async def bare(number: int) -> int:
        return number + 1

    @toolbox.tool(name="other name", version="7", continues=("5", "6"), priority=3)
    def called(number: int) -> int:
        return number + 1

    @toolbox.tool()
    def with_empty_brackets() -> None: ...

    assert asyncio.run(bare(1)) == called(1) == 2
    assert [tool.name for tool in toolbox] == ["bare", "other name", "with_empty_brackets"]
    assert toolbox.get("bare").body is bare
    found = toolbox.get("other name")
    assert (found.body, found.priority, found.execution_mode) == (called, 3, ExecutionMode.THREAD)
    for version in "567":
        assert toolbox.find(Tool("other name", version)) is found
    assert toolbox.find(Tool("other name", "4")) is None


def test_a_tool_is_looked_up_in_the_version_that_was_added_last() -> None:
    toolbox = Toolbox()
    older, newer = make_tool(body, version="1"), make_tool(body, version="2")
    toolbox.add(older)
    toolbox.add(newer)
    assert toolbox.get("body") is newer
    assert toolbox.find(Tool("body", "1")) is older
    assert list(toolbox) == [older, newer]


def test_overlapping_versions_are_rejected_and_leave_the_toolbox_unchanged() -> None:
    toolbox = Toolbox()
    first = make_tool(body, version="2", continues=("1",))
    toolbox.add(first)
    with pytest.raises(ConfigurationError, match="tool 'body' already exists in version '1'"):
        toolbox.add(make_tool(body, version="3", continues=("1",)))
    assert toolbox.find(Tool("body", "3")) is None
    assert toolbox.get("body") is first


def test_the_error_for_an_unknown_tool_names_the_existing_ones() -> None:
    toolbox = Toolbox()
    with pytest.raises(UnknownTool, match="there is no tool 'report': no tool is registered"):
        toolbox.get("report")
    toolbox.tool(body)
    toolbox.tool(plain)
    with pytest.raises(UnknownTool, match="there is no tool 'report': the tools are body, plain"):
        toolbox.get("report")


def test_arguments_are_checked_against_the_body_without_its_context() -> None:
    async def report(year: int, *rest: int, task: TaskContext, title: str = "", **more: str) -> None: ...

    async def strict(year: int, task: TaskContext) -> None: ...

    make_tool(report).check_arguments({"year": 1, "anything": "else"})
    make_tool(strict).check_arguments({"year": 1})
    for wrong in ({}, {"year": 1, "month": 2}, {"year": 1, "task": None}):
        with pytest.raises(InvalidValue, match="tool 'strict' can't be called like that"):
            make_tool(strict).check_arguments(wrong)
    with pytest.raises(InvalidValue, match="tool 'report' can't be called like that"):
        make_tool(report).check_arguments({"year": 1, "task": None})


def test_an_optional_context_is_rejected() -> None:
    async def maybe(task: TaskContext | None = None) -> None: ...

    async def unknown(task) -> None: ...  # type: ignore[no-untyped-def] # that is the point

    bodies: list[Any] = [maybe, unknown]
    for body in bodies:
        with pytest.raises(ConfigurationError, match="annotate the parameter `task` as TaskContext"):
            Toolbox().tool(body)


def test_a_generator_is_rejected() -> None:
    async def several() -> AsyncIterator[int]:
        yield 1

    def more() -> Iterator[int]:
        yield 1

    for body in (several, more):
        with pytest.raises(ConfigurationError, match="is a generator, but a task has a single result"):
            Toolbox().tool(body)


def test_an_engine_takes_a_store_and_not_its_name() -> None:
    with pytest.raises(ConfigurationError, match="an engine needs an open store, not"):
        Engine("tasks.db", Toolbox())  # type: ignore[arg-type] # that is the point
