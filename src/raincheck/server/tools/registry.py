"""The tools whose calls become tasks, and how each of them is called.

Tools that somebody else registered: a task runs them as the server itself would, through its own handler.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, cast

from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import CallToolRequestParams, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from raincheck.core.payload import Json
from raincheck.core.policies import DEFAULT_RETRY, OnInterrupt, RetryPolicy
from raincheck.engine import Toolbox
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.tool import TaskTool, make_tool
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.server.identity import ActingFor
from raincheck.server.sdk_compat import Handler, tool_of
from raincheck.server.tools.functions import ServedFunction
from raincheck.server.tools.policy import Mode, ServedSettings, TaskPolicy
from raincheck.server.tools.results import TellingErrors, keep_result, value_of
from raincheck.server.tools.task_session import Workplace, play_rounds

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


logger = logging.getLogger(__name__)

POLICY = frozenset(TaskPolicy.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool whose calls become tasks."""

    task_tool: TaskTool
    policy: TaskPolicy
    sdk: SdkTool | None
    """The server's own tool, which reads its arguments; None for a low-level server, which has its own ways."""

    @property
    def name(self) -> str:
        return self.task_tool.name

    @property
    def is_idempotent(self) -> bool:
        """Whether its author says that to call it twice is no more than to call it once."""
        annotations = None if self.sdk is None else self.sdk.annotations
        return annotations is not None and annotations.idempotent_hint is True


class ServedTools:
    """What a server has of them. Tools of others are found when they are looked for: they may come later."""

    def __init__(self, server: Server[Any], toolbox: Toolbox, workplace: Workplace) -> None:
        self.enabled = Enabled()
        self._server = server
        self._toolbox = toolbox
        self._workplace = workplace
        self._by_name: dict[str, ServedTool] = {}
        self._ready: dict[str, None] = {}
        self.handler: Handler | None = None
        """The server's own, which runs the tools of others."""

    def add(self, function: ServedFunction, settings: ServedSettings) -> ServedTool:
        """Serve a function.

        Raises:
            ConfigurationError: it can't work like that, or there is one of its name.
        """
        self.check_free(function.name)
        key = settings.get("idempotency")
        if isinstance(key, str) and key not in function.sdk.parameters.get("properties", {}):
            raise ConfigurationError(f"tool {function.name!r}: idempotency names an argument, and it has no {key!r}")
        return self._keep(function.name, function.body(settings.get("isolation")), function.sdk, settings)

    def check_free(self, name: str) -> None:
        """Refuse a name that a tool of the server has.

        Raises:
            ConfigurationError: it has.
        """
        knows = self._server.get_tool_input_schema
        if name in self._ready or (knows is not None and knows(name) is not None):
            raise ConfigurationError(f"the server has a tool {name!r} already: give one of the two another name")

    def keep_ready(self, tool: TaskTool, policy: TaskPolicy, sdk: SdkTool) -> None:
        """Serve a tool that was made elsewhere, in the place of any that was served under its name."""
        self._toolbox.replace(tool)
        self._by_name[tool.name] = ServedTool(tool, policy, sdk)
        self._ready[tool.name] = None

    @property
    def ready(self) -> list[ServedTool]:
        """Those that were made elsewhere."""
        return [self._by_name[name] for name in self._ready]

    def check_ready(self, name: str) -> None:
        """Refuse a name that no tool has which was made elsewhere.

        Raises:
            ConfigurationError: it has none.
        """
        if name not in self._ready:
            there = ", ".join(sorted(self._ready)) or "none at all"
            raise ConfigurationError(f"no tool {name!r} was added, so it can't be exchanged: there is {there}")

    def remove(self, name: str) -> None:
        """Serve a tool no more that was made elsewhere. What runs it goes on: the toolbox keeps it."""
        del self._ready[name]
        del self._by_name[name]

    def find(self, name: str) -> ServedTool | None:
        """The tool of this name, if its calls become tasks and the server still has it."""
        if not self.has(name):
            return None
        known, current = self._by_name.get(name), tool_of(self._workplace.server, name)
        if self._workplace.server is None and name in self._ready:
            return known
        # If the server has another of that name by now, that is called.
        if known is not None and known.sdk is current:
            return known
        settings = self.enabled.find(name)
        if settings is None or self.handler is None:
            return None
        if "retry" not in settings:
            # Whoever wrote it did not think of its being called again: its errors are its answer, as they always were.
            settings = cast("ServedSettings", {"retry_on": (), **settings})
        body = handler_body(name, self.handler, self._workplace)
        return self._keep(name, body, current, settings, is_new=known is None)

    def expected(self, name: str) -> float | None:
        """How many seconds the author expects a call to take."""
        known = self._by_name.get(name)
        return None if known is None else known.policy.expected

    def has_any(self, mode: Mode) -> bool:
        """Whether there is a tool of that mode."""
        return any(tool.policy.mode == mode for tool in self._by_name.values())

    def has(self, name: str) -> bool:
        """Whether the server has a tool of this name, as far as it can tell."""
        knows = self._server.get_tool_input_schema
        return knows is None or name in self._ready or knows(name) is not None

    def take_listed(self, name: str) -> None:
        """The server has the tool now: from here on, it is that one."""
        self._by_name[name] = replace(self._by_name[name], sdk=tool_of(self._workplace.server, name))

    def find_all(self, names: Iterable[str]) -> None:
        """Have these ready to run, if they are to: tasks of theirs may be waiting."""
        found = [name for name in dict.fromkeys((*names, *self.enabled.names)) if self.find(name) is not None]
        for pattern in self.enabled.without_any(found):
            logger.warning("no tool is called %r, so nothing is enabled by that yet", pattern)

    def _keep(
        self,
        name: str,
        body: Callable[..., Any],
        sdk: SdkTool | None,
        settings: ServedSettings,
        *,
        is_new: bool = True,
    ) -> ServedTool:
        policy, rest = check_settings(name, settings)
        rest.setdefault("retry", retry_of(None if sdk is None else sdk.annotations))
        made = replace(make_tool(body, name, **rest), accepts=partial(check_arguments, name, sdk), value_of=value_of)
        tool = ServedTool(made, policy, sdk)
        if is_new:
            self._toolbox.add(tool.task_tool)
        else:
            self._toolbox.replace(tool.task_tool)
        self._by_name[name] = tool
        return tool


def check_arguments(name: str, sdk: SdkTool | None, arguments: Mapping[str, Json]) -> None:
    """Refuse arguments that don't fit the tool's schema.

    Raises:
        InvalidValue: it says which.
    """
    try:
        if sdk is not None:
            sdk.fn_metadata.validate_arguments(dict(arguments))
    except ValidationError as error:
        raise InvalidValue(f"the arguments do not fit tool {name!r}: {error}") from error


def retry_of(annotations: ToolAnnotations | None) -> RetryPolicy:
    """Something that destroys, and that may not be done twice, is not run again after a crash."""
    if annotations is not None and annotations.destructive_hint and not annotations.idempotent_hint:
        return replace(DEFAULT_RETRY, on_interrupt=OnInterrupt.FAIL)
    return DEFAULT_RETRY


def check_settings(name: str | None, settings: ServedSettings) -> tuple[TaskPolicy, dict[str, Any]]:
    """What was set: how calls become tasks, and how those run.

    Raises:
        ConfigurationError: there is no such setting, or it can't be set to that.
    """
    which = "a tool" if name is None else f"tool {name!r}"
    known = ServedSettings.__annotations__.keys()
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise ConfigurationError(f"{which} has no setting {unknown[0]!r}: there are {', '.join(sorted(known))}")
    try:
        policy = TaskPolicy(**{key: value for key, value in settings.items() if key in POLICY})  # type: ignore[arg-type] # its own fields
    except ConfigurationError as error:
        raise ConfigurationError(f"{which}: {error}") from error
    rest = {key: value for key, value in settings.items() if key not in POLICY}
    if name is not None:
        # Where a body takes a process of its own, that is looked at with the body.
        make_tool(_any_body, name, **{key: value for key, value in rest.items() if key != "isolation"})  # type: ignore[arg-type] # likewise
    return policy, rest


async def _any_body() -> None:
    """For settings that have no body yet."""
