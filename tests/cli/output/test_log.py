"""Tests for the log of `serve` and `worker`: a line for each record, as text or JSON, and repeats counted."""

import io
import json
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver.utilities.logging import configure_logging
from rich.logging import RichHandler

from raincheck.cli.output import log
from raincheck.cli.output.log import REPEAT_WINDOW, JsonFormatter, LogFormat, LogHandler, TextFormatter, install_handler
from raincheck.tracebacks import text_logger
from tests.support.cli.terminal import run

TASK_ID = "01a1e0587e4040711d28f872842ab102ad4fa6b73298"

NEW_YEAR = 1_767_225_600.25

SERVER = """
from mcp.server.mcpserver import MCPServer
from raincheck import RetryPolicy, Tasks

mcp = MCPServer("fallible")
tasks = Tasks(mcp, "tasks.db")


@tasks.tool(inline_for=0, expected=30, retry=RetryPolicy(attempts=1))
async def crash() -> str:
    raise RuntimeError("boom")
"""


class Log:
    """A logger with a handler of ours. A window ends when the test says so."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        self.windows: list[tuple[float, Callable[[], None]]] = []
        self.handler = LogHandler(self.stream, lambda seconds, action: self.windows.append((seconds, action)))
        self.handler.setFormatter(formatter)
        self.logger = text_logger("tests.log_output")
        self.logger.handlers, self.logger.propagate = [self.handler], False
        self.logger.setLevel(logging.DEBUG)

    @property
    def lines(self) -> list[str]:
        """What was written since the last time."""
        written = self.stream.getvalue().splitlines()
        self.stream.seek(0)
        self.stream.truncate()
        return written

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def end_window(self) -> None:
        ((seconds, action),) = self.windows
        assert seconds == REPEAT_WINDOW
        self.windows.clear()
        action()


@pytest.fixture
def text() -> Log:
    return Log(TextFormatter())


@pytest.fixture
def as_json() -> Log:
    return Log(JsonFormatter())


def crash(message: str = "boom") -> None:
    raise RuntimeError(message)


def crash_elsewhere() -> None:
    raise RuntimeError("boom")


def from_sdk(log: Log, body: Callable[[], None]) -> None:
    """Log an error as a library does, with the exception itself."""
    try:
        body()
    except RuntimeError as error:
        exc_info = (RuntimeError, error, error.__traceback__)
        log.handler.handle(logging.LogRecord("tests.sdk", logging.ERROR, __file__, 1, "failed", None, exc_info))


def test_a_record_is_one_line_however_long_and_begins_with_its_time(text: Log) -> None:
    record = logging.LogRecord("raincheck.x", logging.INFO, __file__, 1, "task %s %s", (TASK_ID, "x" * 500), None)
    record.created = NEW_YEAR
    text.handler.handle(record)
    assert text.lines == [f"2026-01-01T00:00:00Z INFO raincheck.x: task {TASK_ID} {'x' * 500}"]


def test_further_lines_of_a_record_are_indented(text: Log) -> None:
    """So that no caller can make a line that looks like a record."""
    text.logger.info("a name that was sent: a\n2026-01-01T00:00:00Z INFO forged: b")
    first, second = text.lines
    assert first.endswith("a name that was sent: a")
    assert second == "    2026-01-01T00:00:00Z INFO forged: b"


def test_in_json_a_record_is_one_object_with_its_exception_and_its_fields(as_json: Log) -> None:
    try:
        crash()
    except RuntimeError:
        as_json.logger.exception("task %s failed", TASK_ID, extra={"audit": {"task": TASK_ID}, "path": Path("x")})
    (one,) = as_json.objects
    assert one["time"].endswith("Z")
    assert (one["level"], one["logger"], one["message"]) == ("ERROR", "tests.log_output", f"task {TASK_ID} failed")
    assert one["exception"].startswith("Traceback (most recent call last):\n")
    assert one["exception"].endswith("RuntimeError: boom")
    assert (one["audit"], one["path"]) == ({"task": TASK_ID}, "x")
    assert len(one) == 7


def test_in_json_an_exception_of_another_library_is_in_its_object_too(as_json: Log) -> None:
    from_sdk(as_json, crash)
    (one,) = as_json.objects
    assert one["message"] == "failed"
    assert one["exception"].endswith("RuntimeError: boom")


def test_a_repeated_warning_is_written_once_and_then_counted(text: Log) -> None:
    for _ in range(4):
        text.logger.warning("the store is away")
    assert len(text.lines) == 1
    text.end_window()
    (line,) = text.lines
    assert line.endswith("WARNING tests.log_output: repeated 3 times within 10 s: the store is away")
    text.logger.warning("the store is away")
    assert len(text.lines) == 1, "a new window shows it again"
    text.end_window()
    assert text.lines == []
    assert text.windows == [], "nothing is scheduled while nothing is logged"


def test_errors_of_several_tasks_are_all_written(text: Log) -> None:
    for number in range(3):
        text.logger.error("task %s failed", number)
    assert len(text.lines) == 3
    text.end_window()
    assert text.lines == []


def test_a_traceback_is_written_once_while_each_task_that_fails_alike_has_its_line(text: Log) -> None:
    for number in range(3):
        text.logger.error("task %s failed", number, extra={"traceback": "Traceback:\n  deep inside\nValueError: boom"})
    lines = text.lines
    assert [line.partition("tests.log_output: ")[2] or line for line in lines] == [
        "task 0 failed",
        "    Traceback:",
        "      deep inside",
        "    ValueError: boom",
        "task 1 failed: ValueError: boom (same traceback as before)",
        "task 2 failed: ValueError: boom (same traceback as before)",
    ]
    text.logger.error("task 3 failed", extra={"traceback": "Traceback:\nValueError: something else"})
    assert len(text.lines) == 3
    text.end_window()
    text.logger.error("task 4 failed", extra={"traceback": "Traceback:\n  deep inside\nValueError: boom"})
    assert len(text.lines) == 4, "a new window shows it again"


def test_in_json_every_error_has_its_traceback(as_json: Log) -> None:
    for number in range(2):
        as_json.logger.error("task %s failed", number, extra={"traceback": "ValueError: boom"})
    assert [(one["message"], one["exception"]) for one in as_json.objects] == [
        ("task 0 failed", "ValueError: boom"),
        ("task 1 failed", "ValueError: boom"),
    ]


def test_records_below_warning_are_never_counted(text: Log) -> None:
    for _ in range(2):
        text.logger.info("retrieved")
    assert len(text.lines) == 2


def test_an_exception_is_the_same_if_its_message_and_its_stack_are(as_json: Log) -> None:
    for message in ("boom", "another message", "boom"):
        from_sdk(as_json, partial(crash, message))
    from_sdk(as_json, crash_elsewhere)
    assert len(as_json.lines) == 3
    as_json.end_window()
    assert [one["repeated"] for one in as_json.objects] == [1]


def test_records_that_differ_in_their_fields_are_all_written(as_json: Log) -> None:
    for user in ("ada", "bob"):
        as_json.logger.warning("login failed", extra={"user": user})
    assert [one["user"] for one in as_json.objects] == ["ada", "bob"]


@pytest.mark.parametrize("exc_info", [False, None])
def test_a_record_may_have_empty_exception_info(text: Log, exc_info: bool | None) -> None:
    """FastMCP, asyncio and procrastinate log with `exc_info=False`."""
    text.logger.error("tool failed", exc_info=exc_info)
    logging.getLogger("uvicorn.error").handle(logging.LogRecord("x", 40, "", 1, "m", None, exc_info))  # type: ignore[arg-type]
    (line,) = text.lines
    assert line.endswith("tool failed")


def test_without_a_timer_every_record_is_written(text: Log) -> None:
    """A thread for the timer can't always be started."""

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    text.handler = LogHandler(text.stream, fail)
    text.handler.setFormatter(TextFormatter())
    text.logger.handlers = [text.handler]
    for _ in range(2):
        text.logger.error("failed")
    assert len(text.lines) == 2


def test_control_characters_are_escaped(text: Log) -> None:
    text.logger.warning("host evil\x1b]0;pwned\x07\r2026-01-01T00:00:00Z ERROR forged\x85")
    (line,) = text.lines
    assert r"evil\x1b]0;pwned\x07\r2026-01-01T00:00:00Z ERROR forged\x85" in line


def test_json_output_has_every_field_whatever_its_value_or_name(as_json: Log) -> None:
    as_json.logger.info("m", extra={"odd": {(1, 2): 3}, "ratio": float("nan"), "time": "noon"}, stack_info=True)
    (one,) = as_json.objects
    assert (one["odd"], one["ratio"], one["extra_time"]) == ("{(1, 2): 3}", "nan", "noon")
    assert "test_json_output_has_every_field" in one["stack"]


def test_the_number_of_tracked_errors_is_bounded(text: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_TRACKED", 2)
    for number in (1, 2, 3, 3, 1):
        text.logger.error("failure %d", number)
    assert len(text.lines) == 4
    text.end_window()
    assert len(text.lines) == 1


def test_pending_counts_are_written_when_the_log_is_closed(text: Log) -> None:
    for _ in range(2):
        text.logger.error("failed")
    text.handler.close()
    assert text.lines[-1].endswith("repeated 1 times within 10 s: failed")


@contextmanager
def fresh_root() -> Generator[logging.Logger]:
    """The root logger, as in a new process: pytest has handlers there, and FastMCP has its own once it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        root, fastmcp = logging.getLogger(), logging.getLogger("fastmcp")
        patch.setattr(root, "handlers", [])
        patch.setattr(root, "level", logging.WARNING)
        patch.setattr(fastmcp, "handlers", [])
        patch.setattr(fastmcp, "propagate", True)
        yield root


@pytest.mark.parametrize("log_format", [None, *LogFormat])
def test_the_handler_of_the_sdk_is_replaced(log_format: LogFormat | None) -> None:
    with fresh_root() as root:
        configure_logging("DEBUG")
        assert isinstance(root.handlers[0], RichHandler)
        install_handler(log_format, is_quiet=False)
        (handler,) = root.handlers
        assert isinstance(handler, LogHandler)
        assert isinstance(handler.formatter, JsonFormatter if log_format is LogFormat.JSON else TextFormatter)
        # The level is the one that the server was made with.
        assert (root.level, handler.level) == (logging.DEBUG, logging.NOTSET)


def test_a_handler_of_the_program_beside_the_one_of_the_sdk_stays(tmp_path: Path) -> None:
    with fresh_root() as root:
        configure_logging()
        own = logging.FileHandler(tmp_path / "own.log", delay=True)
        root.addHandler(own)
        install_handler(None, is_quiet=False)
        assert root.handlers[0] is own
        assert isinstance(root.handlers[1], LogHandler)


def test_a_rich_handler_of_the_program_stays() -> None:
    with fresh_root() as root:
        own = RichHandler(rich_tracebacks=True)
        logging.basicConfig(level="NOTSET", format="%(message)s", datefmt="[%X]", handlers=[own])
        configure_logging()
        install_handler(None, is_quiet=False)
        assert root.handlers == [own]


def test_on_stdio_only_warnings_and_errors_are_written() -> None:
    with fresh_root() as root:
        configure_logging()
        install_handler(None, is_quiet=True)
        assert root.handlers[0].level == logging.WARNING


def test_a_program_without_logging_configuration_logs_info_too() -> None:
    with fresh_root() as root:
        install_handler(None, is_quiet=False)
        assert root.level == logging.INFO


def test_a_programs_own_logging_configuration_stays_and_the_option_is_reported_as_ineffective(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with fresh_root() as root:
        own = logging.NullHandler()
        logging.basicConfig(handlers=[own], level=logging.ERROR)
        configure_logging()
        install_handler(None, is_quiet=True)
        assert capsys.readouterr().err == ""
        install_handler(LogFormat.JSON, is_quiet=True)
        assert (
            capsys.readouterr().err == "raincheck: --log-format has no effect: the program configures logging itself\n"
        )
        assert (root.handlers, root.level) == ([own], logging.ERROR)


def test_fastmcp_logs_through_the_same_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_root() as root:
        fastmcp = logging.getLogger("fastmcp")
        monkeypatch.setattr(fastmcp, "handlers", [RichHandler(), RichHandler(rich_tracebacks=True)])
        monkeypatch.setattr(fastmcp, "propagate", False)
        install_handler(None, is_quiet=False)
        assert (fastmcp.handlers, fastmcp.propagate) == ([], True)
        assert isinstance(root.handlers[0], LogHandler)


@pytest.mark.usefixtures("folder")
def test_on_stdio_a_failed_attempt_is_all_that_is_logged_and_its_line_has_the_whole_id() -> None:
    Path("server.py").write_text(SERVER, encoding="utf-8")
    program = Path(sys.executable).with_name("raincheck")
    assert run("call", f'sh -c "{program} serve server.py 2> server.log"', "crash").returncode == 1
    (task,) = json.loads(run("tasks", "ls", "--store", "tasks.db", "--json").stdout)
    first, *below = Path("server.log").read_text(encoding="utf-8").splitlines()
    assert f" ERROR raincheck.engine.execution.failures: task {task['id']}: attempt 1 of tool crash raised" in first
    assert below[0] == "    Traceback (most recent call last):"
    assert below[-1] == "    RuntimeError: boom"
    assert all(line.startswith("    ") for line in below)
