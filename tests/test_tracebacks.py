"""Errors that are logged reach the handlers with their traceback as text."""

import ast
import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.logging import RichHandler

import raincheck
from raincheck.tracebacks import LOGGED_LIMIT, FailureMessage, text_logger

logger = text_logger("tests.tracebacks")


class StrictRichHandler(RichHandler):
    """The handler of the SDK. It fails for a record with `exc_info`."""

    def __init__(self) -> None:
        super().__init__(console=Console(file=StringIO(), width=80), rich_tracebacks=True)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info is None
        self.records.append(record)
        super().emit(record)


@pytest.fixture
def rendering() -> Iterator[StrictRichHandler]:
    handler = StrictRichHandler()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def fail(message: str = "no room for 100%") -> None:
    raise ConnectionError(message)


def test_a_handler_receives_the_traceback_as_text_below_the_message(rendering: StrictRichHandler) -> None:
    try:
        fail()
    except ConnectionError:
        logger.exception("task %s failed", "abc")
    (record,) = rendering.records
    first, below, *_, last = record.getMessage().splitlines()
    assert (first, below) == ("task abc failed", "Traceback (most recent call last):")
    assert last == "ConnectionError: no room for 100%"


def test_text_that_was_formatted_before_is_not_formatted_again(rendering: StrictRichHandler) -> None:
    logger.error("task %s failed", "abc", extra={"traceback": "as formatted"})
    (record,) = rendering.records
    message: object = record.msg
    assert message == FailureMessage("task abc failed", "as formatted")
    assert not hasattr(record, "traceback"), "handlers that write all fields write it once"


def test_a_record_without_an_error_is_unchanged(rendering: StrictRichHandler) -> None:
    logger.warning("%d left", 3)
    (record,) = rendering.records
    assert (record.msg, record.args) == ("%d left", (3,))


def test_a_long_traceback_is_logged_with_its_first_cause_and_its_last_call(rendering: StrictRichHandler) -> None:
    try:
        try:
            fail("the first cause")
        except ConnectionError as error:
            raise ValueError("x" * 100_000) from error
    except ValueError:
        logger.exception("failed")
    message = rendering.records[0].getMessage()
    assert "the first cause" in message
    assert message.endswith("xxx")
    assert len(message) <= LOGGED_LIMIT + len("failed\n")


def _logs_errors(tree: ast.AST) -> bool:
    """Return whether a module calls `.exception("message")`, or gives a call `exc_info`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(
        (isinstance(call.func, ast.Attribute) and call.func.attr == "exception" and call.args)
        or any(keyword.arg == "exc_info" for keyword in call.keywords)
        for call in calls
    )


def test_every_module_logs_tracebacks_as_text() -> None:
    modules = {path: path.read_text(encoding="utf-8") for path in Path(raincheck.__file__).parent.rglob("*.py")}
    logging_errors = [path for path, text in modules.items() if _logs_errors(ast.parse(text))]
    assert logging_errors
    assert [path for path in logging_errors if "text_logger(" not in modules[path]] == []
