"""Tools that somebody else registered: a task runs them as the server itself would, through its own handler."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from mcp.server.context import HandlerResult
from mcp_types import CallToolRequestParams, InputRequiredResult

from raincheck.core.payload import Json
from raincheck.engine.context import TaskContext
from raincheck.errors import ConfigurationError
from raincheck.server.callers import ActingFor
from raincheck.server.policy import ServedSettings
from raincheck.server.results import TellingErrors, keep_result
from raincheck.server.rounds import play_rounds
from raincheck.server.sdk import Handler
from raincheck.server.workplace import Workplace

PATTERN = frozenset("*?[")


class Enabled:
    """Which tools of others run as tasks, by name or by pattern; what was said last goes first."""

    def __init__(self) -> None:
        self._said: list[tuple[str, ServedSettings]] = []

    def check(self, pattern: str, settings: ServedSettings, *, may_match: bool) -> None:
        """Refuse what can't be the name of tools, or a pattern of theirs such as `report_*`.

        Raises:
            ConfigurationError: it says why.
        """
        if not isinstance(pattern, str) or not pattern:  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
            raise ConfigurationError(
                f"enable takes the name of a tool, or a pattern such as 'report_*', not {pattern!r}"
            )
        if not may_match and not PATTERN.isdisjoint(pattern):
            raise ConfigurationError(
                f"{pattern!r} is a pattern, and a low-level server does not say which tools it has: name each of them"
            )
        if settings.get("isolation") is not None:
            raise ConfigurationError(
                f"tools that somebody else registered run in the server's own process, so {pattern!r} can't be isolated"
            )

    def add(self, pattern: str, settings: ServedSettings) -> None:
        """Let the tools of this name, or that match this pattern, run as tasks."""
        self._said.append((pattern, settings))

    @property
    def names(self) -> list[str]:
        """The tools that are named one by one."""
        return [pattern for pattern, _ in self._said if PATTERN.isdisjoint(pattern)]

    def without_any(self, names: Iterable[str]) -> list[str]:
        """What was said of no tool of these."""
        known = list(names)
        return [pattern for pattern, _ in self._said if not any(fnmatchcase(name, pattern) for name in known)]

    def find(self, name: str) -> ServedSettings | None:
        """What was said of a tool."""
        said = reversed(self._said)
        return next((settings for pattern, settings in said if pattern == name or fnmatchcase(name, pattern)), None)


def handler_body(name: str, handler: Handler, workplace: Workplace) -> Callable[..., Any]:
    """A body that calls a tool as its server would.

    A low-level server has nothing but its handler, which may tell of a crash in a result, and then that is the result.
    """
    server = workplace.server

    async def body(*, raincheck_context: TaskContext, **arguments: Json) -> Json:
        task = raincheck_context

        async def play(params: CallToolRequestParams) -> HandlerResult | InputRequiredResult:
            if server is None:
                return await handler(workplace.request_context(task, params), params)
            return await server.call_tool(name, dict(arguments), workplace.context(task, params))

        with ActingFor(task.caller, task.id, name), TellingErrors():
            return keep_result(await play_rounds(task, workplace.first_round(task, name, arguments), play))

    body.__name__ = body.__qualname__ = name
    return body
