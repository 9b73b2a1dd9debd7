"""Bodies in processes of their own: what passes, and how they end."""

import asyncio
import inspect
import os
import traceback
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from raincheck.core.payload import encode
from raincheck.core.records import InputKind
from raincheck.engine.execution.api import StepStart, TaskApi
from raincheck.engine.isolation.process_body import IsolatedError, ProcessDied
from raincheck.engine.isolation.protocol import ALLOWED_CALLS, BadFrame, pack_frame
from raincheck.errors import AlreadyRecorded, ConfigurationError, LeaseLost, NotJson, QuotaExceeded, TooLarge, ToolError
from tests.support.engine import isolated_bodies as bodies
from tests.support.engine.isolation import FACTS, Isolation, isolating

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
    expected = [FACTS.id, FACTS.owner, FACTS.attempt, FACTS.caller, FACTS.variables, False]
    assert await isolation.returned_by(bodies.facts) == expected


@pytest.mark.parametrize("body", [bodies.asks_for_everything, bodies.asks_for_everything_async])
async def test_every_call_of_a_context_reaches_the_desk(isolation: Isolation, body: Any) -> None:
    returned = await isolation.returned_by(body)
    assert returned[:4] == [["a", 1], {"from": "before"}, True, {"text": "sampled"}]
    assert returned[4:] == [{"kept": 1, "seen": [1]}, "child-1", "of the child", "next-1"]
    assert isolation.desk.calls == [
        ("report", 1, 2, "half"),
        ("report", None, None, "at it"),
        ("begin_step", "load", "step"),
        ("finish_step", "load", StepStart(3), "step", ["a", 1]),
        ("begin_step", "known", "step"),
        ("ask", InputKind.ELICITATION, "elicit", {"message": "Go on?", "requestedSchema": bodies.SCHEMA}),
        ("ask", InputKind.SAMPLING, "sample", {"messages": [{"role": "user"}], "maxTokens": 5}),
        ("sleep", 0.5, "nap"),
        ("set_variables", {"kept": 1, "seen": [1]}),
        ("keep_artifact", "page", {"n": 1}),
        ("spawn", "other", {"a": 1}, "another"),
        ("start_after", "next", {"b": 2}, "r"),
        ("child_outcome", "child-1"),
    ]


def test_what_may_be_called_from_a_process_is_what_a_desk_has() -> None:
    methods = {name: method for name, method in vars(TaskApi).items() if not name.startswith("_")}
    assert {name: list(inspect.signature(method).parameters)[1:] for name, method in methods.items()} == {
        name: list(parameters) for name, parameters in ALLOWED_CALLS.items()
    }


@pytest.mark.parametrize("body", [bodies.has_a_step_that_fails, bodies.has_a_step_that_fails_async])
async def test_a_step_that_fails_is_dropped_before_anything_else_is_asked(isolation: Isolation, body: Any) -> None:
    assert await isolation.returned_by(body) == "done"
    assert [call[0] for call in isolation.desk.calls] == ["begin_step", "drop_step", "report"]


async def test_a_desks_error_is_the_same_error_in_the_body(isolation: Isolation) -> None:
    refused = QuotaExceeded("live children", 3, timedelta(seconds=90))
    isolation.desk.raises["spawn"] = refused
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
async def test_an_error_of_the_desk_that_is_not_ours_is_the_plainest_of_ours(
    isolation: Isolation, error: Exception, said: str
) -> None:
    isolation.desk.raises["report"] = error
    name, message = await isolation.returned_by(bodies.says_what_it_catches)
    assert name == said
    assert message == (str(error) if said != "RaincheckError" else "KeyError: 'of the engine'")


async def test_what_is_not_json_does_not_reach_the_desk(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.keeps_a_set)
    assert isinstance(error, NotJson)
    assert "content (for keep_artifact) can't be written as JSON" in str(error)
    assert not isolation.desk.calls


async def test_a_call_that_the_body_gives_up_is_given_up_at_the_desk(isolation: Isolation) -> None:
    assert await isolation.returned_by(bodies.gives_up_waiting) == "went on"
    assert [await isolation.hear() for _ in range(3)] == ["sleeping", "given up", "gave up"]


async def test_a_body_that_the_desk_stops_ends_as_cancelled(isolation: Isolation) -> None:
    isolation.desk.raises["sleep"] = asyncio.CancelledError()
    assert isinstance(await isolation.raised_by(bodies.sleeps), asyncio.CancelledError)


async def test_a_tool_error_comes_out_with_its_content(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.declines)
    assert type(error) is ToolError
    assert (str(error), error.content) == ("not today", {"code": 7})


async def test_a_tool_error_whose_content_is_not_json_says_so(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.declines_with_a_set)
    assert isinstance(error, NotJson)
    assert "the content of a ToolError" in str(error)


async def test_one_of_our_errors_comes_out_as_itself(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.refuses_its_child)
    assert isinstance(error, QuotaExceeded)
    assert (error.which, error.limit, error.retry_after) == ("children", 3, None)


async def test_any_other_error_comes_out_with_its_class_and_its_traceback(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.is_unwell)
    assert isinstance(error, IsolatedError)
    assert str(error) == "Unwell: bad \\udcff name"
    assert error.type_name == "Unwell"
    assert error.is_a(bodies.Unwell)
    assert error.is_a(LookupError)
    assert error.is_a(Exception)
    assert not error.is_a(KeyError)
    assert 'raise Unwell("bad' in error.remote_traceback
    assert 'raise Unwell("bad' in "".join(traceback.format_exception(error))


async def test_an_error_that_can_t_say_what_it_is_is_still_reported(isolation: Isolation) -> None:
    assert str(await isolation.raised_by(bodies.has_no_words)).startswith("Wordless: it can't say")


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


async def test_a_process_that_ends_without_a_word_says_with_which_code(isolation: Isolation) -> None:
    error = await isolation.raised_by(bodies.exits_at_once)
    assert isinstance(error, ProcessDied)
    assert str(error) == "its process ended with exit code 3 before it returned"


async def test_a_process_that_crashes_says_by_which_signal(isolation: Isolation) -> None:
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
            "neither an ending nor a call",
        ),
        (
            pack_frame({"call": encode("sleep"), "id": encode(1), "params": encode({"seconds": "x"})}),
            "it takes seconds",
        ),
        (
            pack_frame({"call": encode("drop_step"), "id": encode(1), "params": encode({"x": 1})}),
            "it takes name, occurrence",
        ),
        (pack_frame({"raised": encode("an error")}), "an error is not described as one"),
    ],
    ids=["huge", "no json", "nan", "no object", "no call", "a wrong parameter", "too many", "no error"],
)
async def test_a_process_that_talks_nonsense_is_killed(isolation: Isolation, said: bytes, message: str) -> None:
    error = await isolation.raised_by(bodies.talks_nonsense, said=said.hex())
    assert isinstance(error, BadFrame)
    assert message in str(error)


async def test_a_body_that_left_a_thread_behind_has_returned_all_the_same(isolation: Isolation) -> None:
    assert await isolation.returned_by(bodies.leaves_a_thread, grace=0.05) == "returned"


async def test_a_body_is_found_where_its_name_stands_for_the_tool(isolation: Isolation) -> None:
    renamed = _named(bodies.plain, bodies.__name__, "tool_of_its_own")
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
            r"module 'no_such_module', where 'body' should be, .*NotFoundError.*looked in",
        ),
    ],
)
async def test_a_body_that_can_t_be_found_says_what_was_looked_for_and_where(
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
