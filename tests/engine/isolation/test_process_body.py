"""Isolated bodies: calls, results and errors between the processes."""

import asyncio
import inspect
import os
import traceback
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.records import InputKind
from raincheck.core.values import encode
from raincheck.engine.execution.context import StepStart, TaskApi
from raincheck.engine.isolation.process_body import IsolatedError, ProcessDied
from raincheck.engine.isolation.protocol import ALLOWED_CALLS, BadFrame, pack_frame
from raincheck.errors import AlreadyRecorded, ConfigurationError, LeaseLost, NotJson, QuotaExceeded, TooLarge, ToolError
from tests.support.engine import isolated_bodies as bodies
from tests.support.engine.isolation import INFO, Isolation, isolating

pytestmark = pytest.mark.anyio


@pytest.fixture
async def isolation() -> AsyncIterator[Isolation]:
    async with isolating() as isolation:
        yield isolation


@pytest.mark.parametrize("body", [bodies.plain, bodies.coroutine])
async def test_a_body_runs_in_another_process_and_returns_json(isolation: Isolation, body: Any) -> None:
    returned = await isolation.returned_by(body, numbers=[1, 2], name="größe")
    assert returned["sum"] == 3
    assert returned["name"] == "größe"
    assert returned["pid"] != os.getpid()


async def test_a_body_knows_its_task(isolation: Isolation) -> None:
    expected = [INFO.id, INFO.owner, INFO.attempt, INFO.caller, INFO.variables, False]
    assert await isolation.returned_by(bodies.facts) == expected


@pytest.mark.parametrize("body", [bodies.asks_for_everything, bodies.asks_for_everything_async])
async def test_every_call_of_a_context_reaches_the_task_api(isolation: Isolation, body: Any) -> None:
    returned = await isolation.returned_by(body)
    assert returned[:4] == [["a", 1], {"from": "before"}, True, {"text": "sampled"}]
    assert returned[4:] == [{"kept": 1, "seen": [1]}, "child-1", "of the child", "next-1"]
    assert isolation.api.calls == [
        ("report", 1, 2, "half"),
        ("report", None, None, "at it"),
        ("begin_step", "load", "step"),
        ("finish_step", "load", StepStart(3), "step", ["a", 1]),
        ("begin_step", "known", "step"),
        ("ask", InputKind.ELICITATION, "elicit", {"message": "Go on?", "requestedSchema": bodies.SCHEMA}),
        ("ask", InputKind.SAMPLING, "sample", {"messages": [{"role": "user"}], "maxTokens": 5}),
        ("sleep", 0.5, "nap"),
        ("set_variables", {"kept": 1, "seen": [1]}),
        ("store_artifact", "page", {"n": 1}),
        ("spawn", "other", {"a": 1}, "another"),
        ("start_after", "next", {"b": 2}, "r"),
        ("child_outcome", "child-1"),
    ]


def test_the_allowed_calls_are_the_methods_of_the_task_api() -> None:
    methods = {name: method for name, method in vars(TaskApi).items() if not name.startswith("_")}
    assert {name: list(inspect.signature(method).parameters)[1:] for name, method in methods.items()} == {
        name: list(parameters) for name, parameters in ALLOWED_CALLS.items()
    }


@pytest.mark.parametrize("body", [bodies.has_a_step_that_fails, bodies.has_a_step_that_fails_async])
async def test_a_failed_step_is_dropped_before_the_next_call(isolation: Isolation, body: Any) -> None:
    assert await isolation.returned_by(body) == "done"
    assert [call[0] for call in isolation.api.calls] == ["begin_step", "drop_step", "report"]


async def test_an_error_of_the_task_api_is_the_same_error_in_the_body(isolation: Isolation) -> None:
    refused = QuotaExceeded("live children", 3, timedelta(seconds=90))
    isolation.api.raises["spawn"] = refused
    said = await isolation.returned_by(bodies.spawns_until_refused)
    assert said == ["QuotaExceeded", str(refused), "live children", 3, 90]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AlreadyRecorded("task-1", "that"), "AlreadyRecorded"),
        (LeaseLost("task-1", 2), "LeaseLost"),
        (KeyError("of the engine"), "RaincheckError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_foreign_error_of_the_task_api_becomes_a_plain_raincheck_error(
    isolation: Isolation, error: Exception, said: str
) -> None:
    isolation.api.raises["report"] = error
    name, message = await isolation.returned_by(bodies.returns_caught_error)
    assert name == said
    assert message == (str(error) if said != "RaincheckError" else "KeyError: 'of the engine'")


async def test_a_value_that_is_not_json_does_not_reach_the_task_api(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.stores_a_set)
    assert isinstance(error, NotJson)
    assert "content (for store_artifact) can't be written as JSON" in str(error)
    assert not isolation.api.calls


async def test_bytes_are_not_taken_for_encoded_json(isolation: Isolation) -> None:
    assert isinstance(await isolation.raised_by(bodies.stores_bytes), NotJson)
    assert not isolation.api.calls


async def test_a_call_that_the_body_cancels_is_cancelled_at_the_task_api(isolation: Isolation) -> None:
    assert await isolation.returned_by(bodies.gives_up_waiting) == "went on"
    assert [await isolation.next_status() for _ in range(3)] == ["sleeping", "cancelled", "gave up"]


async def test_a_body_that_the_task_api_stops_ends_as_cancelled(isolation: Isolation) -> None:
    isolation.api.raises["sleep"] = asyncio.CancelledError()
    assert isinstance(await isolation.raised_by(bodies.sleeps), asyncio.CancelledError)


async def test_a_tool_error_arrives_with_its_content(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.declines)
    assert type(error) is ToolError
    assert (str(error), error.content) == ("not today", {"code": 7})


async def test_a_tool_error_whose_content_is_not_json_says_so(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.declines_with_a_set)
    assert isinstance(error, NotJson)
    assert "the content of a ToolError" in str(error)


async def test_a_raincheck_error_arrives_as_the_same_error(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.refuses_its_child)
    assert isinstance(error, QuotaExceeded)
    assert (error.which, error.limit, error.retry_after) == ("children", 3, None)


async def test_any_other_error_arrives_with_its_class_and_traceback(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.raises_own_error)
    assert isinstance(error, IsolatedError)
    assert str(error) == "OwnError: bad \\udcff name"
    assert error.type_name == "OwnError"
    assert error.is_a(bodies.OwnError)
    assert error.is_a(LookupError)
    assert error.is_a(Exception)
    assert not error.is_a(KeyError)
    assert 'raise OwnError("bad' in error.remote_traceback
    assert 'raise OwnError("bad' in "".join(traceback.format_exception(error))


async def test_an_error_without_a_readable_message_is_still_reported(isolation: Isolation) -> None:
    assert str(await isolation.raised_by(bodies.raises_without_message)).startswith(
        "NoMessage: (the error has no message"
    )


async def test_a_result_that_is_not_json_is_refused(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.returns_a_set)
    assert isinstance(error, NotJson)
    assert "the result of tool 'isolated' can't be written as JSON" in str(error)


async def test_a_result_beyond_the_bound_is_refused(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.returns_a_lot)
    assert isinstance(error, TooLarge)
    assert "the result of tool 'isolated' has 67,1" in str(error)


@pytest.mark.parametrize("body", [bodies.exits, bodies.exits_async])
async def test_a_body_that_exits_has_raised_system_exit(isolation: Isolation, body: Any) -> None:
    error = await isolation.raised_by(body)
    assert isinstance(error, IsolatedError)
    assert str(error) == "SystemExit: 4"
    assert not error.is_a(Exception)


async def test_a_process_that_exits_early_is_reported_with_its_exit_code(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.exits_at_once)
    assert isinstance(error, ProcessDied)
    assert str(error) == "its process ended with exit code 3 before it returned"


async def test_a_process_that_crashes_is_reported_with_its_signal(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.crashes)
    assert isinstance(error, ProcessDied)
    assert str(error) == "its process ended by signal SIGSEGV"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"\xff\xff\xff\xff", "4,294,967,295 bytes was announced"),
        (b"\0\0\0\3abc", "a message is not JSON"),
        (b"\0\0\0\5[NaN]", "NaN is not JSON"),
        (b"\0\0\0\2[]", "a message is a JSON object, not list"),
        (
            pack_frame({"call": encode("__init__"), "id": encode(1), "params": encode({})}),
            "neither a final message nor a call",
        ),
        (
            pack_frame({"call": encode("sleep"), "id": encode(1), "params": encode({"seconds": "x"})}),
            "it takes seconds",
        ),
        (
            pack_frame({"call": encode("drop_step"), "id": encode(1), "params": encode({"x": 1})}),
            "it takes name, occurrence",
        ),
        (pack_frame({"raised": encode("an error")}), "the description of an error is invalid"),
    ],
    ids=["huge", "no json", "nan", "no object", "no call", "a wrong parameter", "too many", "no error"],
)
async def test_a_process_that_sends_invalid_messages_is_killed(isolation: Isolation, said: bytes, message: str) -> None:
    error = await isolation.raised_by(bodies.sends_bytes, data=said.hex())
    assert isinstance(error, BadFrame)
    assert message in str(error)


async def test_a_body_that_leaves_a_thread_behind_has_returned(isolation: Isolation) -> None:
    assert await isolation.returned_by(bodies.leaves_a_thread, grace=0.05) == "returned"


async def test_a_body_is_found_if_its_name_refers_to_the_tool(isolation: Isolation) -> None:
    renamed = _named(bodies.plain, bodies.__name__, "isolated_tool")
    assert (await isolation.returned_by(renamed, numbers=[1]))["sum"] == 1


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (
            bodies.__name__,
            "nobody",
            r"no function 'nobody' in tests.support.engine.isolated_bodies \(.*isolated_bodies.py\)",
        ),
        (bodies.__name__, "SCHEMA", r"no function 'SCHEMA'"),
        (
            "no_such_module",
            "body",
            r"module 'no_such_module', which should contain 'body', .*NotFoundError.*looked in",
        ),
    ],
)
async def test_the_error_of_a_body_that_can_t_be_found_says_what_was_searched_and_where(
    isolation: Isolation, module: str, name: str, said: str
) -> None:
    error = await isolation.raised_by(_named(bodies.plain, module, name), numbers=[])
    assert isinstance(error, ConfigurationError)
    with pytest.raises(ConfigurationError, match=said):
        raise error


def _named(body: Any, module: str, name: str) -> Any:
    def other(numbers: list[int]) -> Any:
        return body(numbers)

    other.__module__, other.__qualname__ = module, name
    return other
