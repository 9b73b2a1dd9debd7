"""Misbehaving bodies end only their own task, with a clear error."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.core.policies import Limits, RetryPolicy
from raincheck.core.records import View
from raincheck.core.values import Json, decode
from raincheck.engine import Settings, SyncTaskContext, TaskContext, Toolbox
from raincheck.errors import InvalidValue, ToolError
from tests.support.engine.harness import EngineHarness, outcome_of

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(attempts=1)
SECRET = "postgresql://root:hunter2@db"  # noqa: S105 - of nobody


class Rude(BaseException):
    """Nothing that anybody foresees."""


class Unspeakable(Exception):
    """It can't say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class UnspeakableAnswer(ToolError):
    """It is meant to be read, and can't be."""

    __str__ = Unspeakable.__str__


class UnspeakableRefusal(InvalidValue):
    """One of ours, and it can't be read."""

    __str__ = Unspeakable.__str__


async def ended(harness: EngineHarness, tool: str, **arguments: Json) -> View:
    task = await harness.engine.submit(tool, arguments)
    return await harness.engine.wait(task.id)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param({1, 2}, "set is not JSON serializable", id="a set"),
        pytest.param(float("nan"), "not JSON compliant", id="NaN"),
        pytest.param(object(), "object is not JSON serializable", id="an object"),
        pytest.param("\ud800", "surrogates not allowed", id="a lone surrogate"),
    ],
)
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_result_that_is_not_json_fails_the_task_without_a_retry(
    harness: EngineHarness, value: object, why: str, kind: str
) -> None:
    async def in_the_loop() -> object:
        return value

    def in_a_thread() -> object:
        return value

    harness.toolbox.tool(name="wrong")(in_the_loop if kind == "async" else in_a_thread)
    async with harness.running():
        task, error = await harness.failure_of("wrong")
    assert "the result of tool 'wrong' can't be written as JSON" in error["message"]
    assert why in error["message"]
    assert task.attempt_number == 1


async def test_a_result_that_is_too_large_fails_the_task_without_a_retry(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def talkative() -> str:
        return "x" * 1_000

    async with harness.running(Settings(lease=1, limits=Limits(outcome=500))):
        task, error = await harness.failure_of("talkative")
    assert "the result has 1,002 bytes, and 500 are allowed" in error["message"]
    assert task.attempt_number == 1


async def test_the_text_of_an_unexpected_error_is_only_for_the_operator(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    @harness.toolbox.tool(retry=RetryPolicy(attempts=2, first_wait=ONCE.first_wait * 0))
    async def leaky() -> None:
        raise ConnectionError(f"can't reach {SECRET}")

    async with harness.running():
        task, error = await harness.failure_of("leaky")
        history = await harness.history(task.id)

    assert set(error) == {"kind", "message", "error_id"}
    assert SECRET not in str([error, task, [entry.note for entry in history]])
    assert error["message"] == f"tool 'leaky' failed unexpectedly: ask its operator about error {error['error_id']}"
    assert task.status_message == error["message"]
    retried, failed = (entry for entry in history if entry.detail is not None)
    assert (retried.event, failed.event) == ("retry", "fail")
    for entry, logged in zip((retried, failed), caplog.records[-2:], strict=True):
        detail: Any = decode(entry.detail or b"")  # type: ignore[arg-type] # it is there
        assert detail["error_id"] in (entry.note or "")
        assert detail["type"] == "ConnectionError"
        assert f"ConnectionError: can't reach {SECRET}" in detail["traceback"]
        assert detail["error_id"] in logged.getMessage()
        assert task.id in logged.getMessage()
        # As text: a handler that renders an exception blocks the event loop meanwhile.
        assert logged.exc_info is None
        assert logged.getMessage().endswith(detail["traceback"])
        assert logged.levelno == logging.ERROR
    assert error["error_id"] in (failed.note or "")


def quit_it() -> NoReturn:
    raise SystemExit(3)


def interrupt_it() -> NoReturn:
    raise KeyboardInterrupt


def exit_it() -> NoReturn:
    raise GeneratorExit


def cancel_itself() -> NoReturn:
    raise asyncio.CancelledError("by itself")


def be_rude() -> NoReturn:
    raise Rude("so there")


def be_unspeakable() -> NoReturn:
    raise Unspeakable


def speak_in_halves() -> NoReturn:
    raise ValueError("half of a pair: \ud800")


def stop_iterating() -> NoReturn:
    next(iter(()))
    raise AssertionError


def answer_unspeakably() -> NoReturn:
    raise UnspeakableAnswer("")


def refuse_unspeakably() -> NoReturn:
    raise UnspeakableRefusal


@pytest.mark.parametrize("kind", ["async", "plain", "step of async", "step of plain"])
@pytest.mark.parametrize(
    ("misbehave", "name"),
    [
        (quit_it, "SystemExit"),
        (interrupt_it, "KeyboardInterrupt"),
        (exit_it, "GeneratorExit"),
        (cancel_itself, "CancelledError"),
        (be_rude, "Rude"),
        (be_unspeakable, "Unspeakable"),
        (speak_in_halves, "ValueError"),
        (stop_iterating, "StopIteration"),
        (answer_unspeakably, "no words"),
        (refuse_unspeakably, "no words"),
    ],
)
async def test_any_error_of_a_body_ends_only_its_task(
    harness: EngineHarness, misbehave: Callable[[], NoReturn], name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    # What is logged of it may have half a character in it, which the test runner can't pass on.
    caplog.set_level(logging.CRITICAL, logger="raincheck")

    async def in_the_loop() -> None:
        misbehave()

    def in_a_thread() -> None:
        misbehave()

    async def in_a_step(task: TaskContext) -> None:
        await task.step("bad", misbehave)

    def in_a_plain_step(task: SyncTaskContext) -> None:
        task.step("bad", misbehave)

    bodies: dict[str, Callable[..., Any]] = {
        "async": in_the_loop,
        "plain": in_a_thread,
        "step of async": in_a_step,
        "step of plain": in_a_plain_step,
    }
    harness.toolbox.tool(name="bad", retry=ONCE)(bodies[kind])

    @harness.toolbox.tool
    async def good() -> str:
        return "still here"

    async with harness.running():
        task, error = await harness.failure_of("bad")
        assert "tool 'bad' failed unexpectedly" in error["message"]
        entry = (await harness.history(task.id))[-1]
        detail: Any = decode(entry.detail or b"")  # type: ignore[arg-type] # it is there
        # Python itself makes a RuntimeError of a StopIteration that leaves a coroutine.
        assert name in detail["traceback"]
        assert task.attempt_number == 1
        assert await harness.result_of("good") == "still here"


async def test_an_error_that_is_not_an_exception_is_not_retried_unless_it_is_named(harness: EngineHarness) -> None:
    tries: list[str] = []

    @harness.toolbox.tool(retry=RetryPolicy(attempts=3, first_wait=ONCE.first_wait * 0))
    async def rude() -> None:
        tries.append("rude")
        raise Rude

    @harness.toolbox.tool(retry=RetryPolicy(attempts=3, first_wait=ONCE.first_wait * 0), retry_on=(Rude,))
    async def known_to_be_rude() -> None:
        tries.append("known")
        raise Rude

    async with harness.running():
        await harness.failure_of("rude")
        await harness.failure_of("known_to_be_rude")
    assert tries == ["rude", "known", "known", "known"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ToolError("not published"), {"message": "not published"}),
        (ToolError("see content", [{"type": "text", "text": "all of it"}]), [{"type": "text", "text": "all of it"}]),
        (ToolError("nothing", {}), {}),
    ],
)
async def test_an_error_for_the_caller_completes_the_task_with_its_content(
    harness: EngineHarness, error: ToolError, outcome: Json
) -> None:
    @harness.toolbox.tool
    async def refuse() -> None:
        raise error

    async with harness.running():
        view = await ended(harness, "refuse")
    assert (view.task.phase, view.task.is_error, view.task.attempt_number) == (Phase.COMPLETED, True, 1)
    assert outcome_of(view) == outcome
    assert view.task.status_message == str(error)


async def test_an_error_for_the_caller_whose_content_is_not_json_fails_the_task(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def refuse() -> None:
        raise ToolError("no", {1, 2})

    async with harness.running():
        _, error = await harness.failure_of("refuse")
    assert "the error of tool 'refuse' can't be written as JSON" in error["message"]


async def test_a_task_with_arguments_of_another_version_fails_with_the_reason(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def report(year: int) -> int:
        return year

    async with harness.running(works=False) as engine:
        task = await engine.submit("report", {"year": 2026})

    harness.toolbox = Toolbox()

    @harness.toolbox.tool(name="report", version="2", continues=("1",))
    async def newer(month: int) -> int:
        return month

    async with harness.running() as engine:
        view = await engine.wait(task.id)
    assert (view.task.phase, view.task.attempt_number) == (Phase.FAILED, 1)
    assert "tool 'report' can't be called like that: missing a required argument: 'month'" in str(outcome_of(view))


async def test_an_argument_with_the_name_of_the_context_is_rejected(harness: EngineHarness) -> None:
    @harness.toolbox.tool
    async def report(year: int, task: TaskContext) -> int:
        return year + task.attempt

    async with harness.running() as engine:
        with pytest.raises(InvalidValue, match=r"tool 'report' can't be called like that: .*'task'"):
            await engine.submit("report", {"year": 2026, "task": "mine"})
