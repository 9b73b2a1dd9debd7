"""Register the tools whose calls become tasks, and look up the tool that a call names.

A task runs a tool that other code registered as the server itself would, through the server's own handler.
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

from raincheck.core.policies import DEFAULT_RETRY, OnInterrupt, RetryPolicy
from raincheck.core.values import Json
from raincheck.engine import Toolbox
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.tool import TaskTool, make_tool
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.server.caller import CallerContext
from raincheck.server.results import SdkErrorMapping, encode_result, value_of
from raincheck.server.sdk_compat import Handler, tool_of
from raincheck.server.tools.functions import ServedFunction
from raincheck.server.tools.policy import Mode, ServedToolSettings, TaskPolicy, check_idempotency
from raincheck.server.tools.task_session import SdkContextFactory, run_rounds

PATTERN_CHARACTERS = frozenset("*?[")


class EnabledTools:
    """The tools of other code that run as tasks, by name or by pattern. The last setting takes precedence."""

    def __init__(self) -> None:
        self._settings: list[tuple[str, ServedToolSettings]] = []

    def check(self, pattern: str, settings: ServedToolSettings, *, allow_patterns: bool) -> None:
        """Check that `pattern` can be the name of tools, or a pattern such as `report_*`.

        Raises:
            ConfigurationError: it can't be, for the reason given.
        """
        if not isinstance(pattern, str) or not pattern:  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
            raise ConfigurationError(
                f"enable takes the name of a tool, or a pattern such as 'report_*', not {pattern!r}"
            )
        if not allow_patterns and not PATTERN_CHARACTERS.isdisjoint(pattern):
            raise ConfigurationError(
                f"{pattern!r} is a pattern, and a low-level server does not report its tools: enable each by its name"
            )
        if settings.get("isolation") is not None:
            raise ConfigurationError(
                f"{pattern!r} can't be isolated: tools of other code run in the server's process. Leave out isolation"
            )

    def add(self, pattern: str, settings: ServedToolSettings) -> None:
        """Run the tools of this name, or that match this pattern, as tasks."""
        self._settings.append((pattern, settings))

    @property
    def names(self) -> list[str]:
        """The tools that are enabled by name."""
        return [pattern for pattern, _ in self._settings if PATTERN_CHARACTERS.isdisjoint(pattern)]

    def unmatched_patterns(self, names: Iterable[str]) -> list[str]:
        """Return the names and patterns that match none of these tools."""
        tool_names = list(names)
        return [pattern for pattern, _ in self._settings if not any(fnmatchcase(name, pattern) for name in tool_names)]

    def find(self, name: str) -> ServedToolSettings | None:
        """Return the settings of a tool, or None."""
        latest_first = reversed(self._settings)
        return next(
            (settings for pattern, settings in latest_first if pattern == name or fnmatchcase(name, pattern)), None
        )


def make_handler_body(name: str, handler: Handler, sdk_contexts: SdkContextFactory) -> Callable[..., Any]:
    """Return a body that calls a tool as its server would.

    A low-level server has only its handler, which may report a crash in a result, and then that is the result.
    """
    server = sdk_contexts.server

    async def body(*, raincheck_context: TaskContext, **arguments: Json) -> Json:
        task = raincheck_context

        async def run_round(params: CallToolRequestParams) -> HandlerResult | InputRequiredResult:
            if server is None:
                return await handler(sdk_contexts.request_context(task, params), params)
            return await server.call_tool(name, dict(arguments), sdk_contexts.task_context(task, params))

        with CallerContext(task.caller, task.id, name), SdkErrorMapping():
            return encode_result(await run_rounds(task, sdk_contexts.call_params(task, name, arguments), run_round))

    body.__name__ = body.__qualname__ = name
    return body


logger = logging.getLogger(__name__)

POLICY_FIELDS = frozenset(TaskPolicy.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool whose calls become tasks."""

    task_tool: TaskTool
    policy: TaskPolicy
    sdk: SdkTool | None
    """The server's own tool, which validates arguments; None for a low-level server, which does that in its own way."""

    @property
    def name(self) -> str:
        return self.task_tool.name

    @property
    def is_idempotent(self) -> bool:
        """Whether the author declares that repeated calls have no further effect."""
        annotations = None if self.sdk is None else self.sdk.annotations
        return annotations is not None and annotations.idempotent_hint is True


class ToolRegistry:
    """The tools of a server. Tools of other code are looked up when needed, because they may be added later."""

    def __init__(self, server: Server[Any], toolbox: Toolbox, sdk_contexts: SdkContextFactory) -> None:
        self.enabled = EnabledTools()
        self._server = server
        self._toolbox = toolbox
        self._sdk_contexts = sdk_contexts
        self._by_name: dict[str, ServedTool] = {}
        self._dynamic: dict[str, None] = {}
        self.handler: Handler | None = None
        """The server's own handler, which runs the tools of other code."""

    def add(self, function: ServedFunction, settings: ServedToolSettings) -> ServedTool:
        """Serve a function.

        Raises:
            ConfigurationError: the function can't be served like that, or its name is taken.
        """
        self.check_free(function.name)
        check_idempotency(function.name, settings.get("idempotency"), function.sdk.parameters.get("properties", {}))
        return self._register(function.name, function.body(settings.get("isolation")), function.sdk, settings)

    def check_free(self, name: str) -> None:
        """Reject a name that a tool of the server has.

        Raises:
            ConfigurationError: the name is taken.
        """
        schema_of = self._server.get_tool_input_schema
        if name in self._dynamic or (schema_of is not None and schema_of(name) is not None):
            raise ConfigurationError(f"the server already has a tool {name!r}: rename one of the two")

    def add_dynamic(self, tool: TaskTool, policy: TaskPolicy, sdk: SdkTool) -> None:
        """Serve a ready-made tool, in place of any that was served under its name."""
        self._toolbox.replace(tool)
        self._by_name[tool.name] = ServedTool(tool, policy, sdk)
        self._dynamic[tool.name] = None

    @property
    def dynamic_tools(self) -> list[ServedTool]:
        """The ready-made tools."""
        return [self._by_name[name] for name in self._dynamic]

    def check_dynamic(self, name: str) -> None:
        """Reject a name that no ready-made tool has.

        Raises:
            ConfigurationError: there is no such tool.
        """
        if name not in self._dynamic:
            added = ", ".join(sorted(self._dynamic)) or "none"
            raise ConfigurationError(
                f"no tool {name!r} was added, so it can't be replaced or removed. Added tools: {added}"
            )

    def remove(self, name: str) -> None:
        """Stop serving a ready-made tool. Its tasks continue, because the toolbox keeps it.

        Raises:
            ConfigurationError: there is no such tool.
        """
        self.check_dynamic(name)
        del self._dynamic[name]
        del self._by_name[name]

    def find(self, name: str) -> ServedTool | None:
        """Return the tool of this name, if its calls become tasks and the server still has it."""
        if not self.has(name):
            return None
        registered, current = self._by_name.get(name), tool_of(self._sdk_contexts.server, name)
        if self._sdk_contexts.server is None and name in self._dynamic:
            return registered
        # If the server has another tool of that name by now, a call runs that one.
        if registered is not None and registered.sdk is current:
            return registered
        settings = self.enabled.find(name)
        if settings is None or self.handler is None:
            return None
        if "retry" not in settings:
            # Its author did not expect it to run again: its errors stay its answer, as they are without tasks.
            settings = cast("ServedToolSettings", {"retry_on": (), **settings})
        body = make_handler_body(name, self.handler, self._sdk_contexts)
        return self._register(name, body, current, settings, is_new=registered is None)

    def expected(self, name: str) -> float | None:
        """Return the seconds that the author expects a call to take, or None."""
        tool = self._by_name.get(name)
        return None if tool is None else tool.policy.expected

    def has_mode(self, mode: Mode) -> bool:
        """Return whether there is a tool of that mode."""
        return any(tool.policy.mode == mode for tool in self._by_name.values())

    def has(self, name: str) -> bool:
        """Return whether the server has a tool of this name, as far as it can tell."""
        schema_of = self._server.get_tool_input_schema
        return schema_of is None or name in self._dynamic or schema_of(name) is not None

    def link_sdk_tool(self, name: str) -> None:
        """Link the registered tool to the one that the server has now."""
        self._by_name[name] = replace(self._by_name[name], sdk=tool_of(self._sdk_contexts.server, name))

    def register_all(self, names: Iterable[str]) -> None:
        """Register those of the tools that run as tasks now, because tasks of these tools may be waiting."""
        registered = [name for name in dict.fromkeys((*names, *self.enabled.names)) if self.find(name) is not None]
        for pattern in self.enabled.unmatched_patterns(registered):
            logger.warning("no tool matches %r yet, so nothing is enabled by it", pattern)

    def _register(
        self,
        name: str,
        body: Callable[..., Any],
        sdk: SdkTool | None,
        settings: ServedToolSettings,
        *,
        is_new: bool = True,
    ) -> ServedTool:
        policy, rest = check_settings(name, settings)
        rest.setdefault("retry", retry_of(None if sdk is None else sdk.annotations))
        task_tool = replace(
            make_tool(body, name, **rest), validate=partial(check_arguments, name, sdk), extract_value=value_of
        )
        tool = ServedTool(task_tool, policy, sdk)
        if is_new:
            self._toolbox.add(tool.task_tool)
        else:
            self._toolbox.replace(tool.task_tool)
        self._by_name[name] = tool
        return tool


def check_arguments(name: str, sdk: SdkTool | None, arguments: Mapping[str, Json]) -> None:
    """Reject arguments that don't fit the tool's schema.

    Raises:
        InvalidValue: the message names the arguments.
    """
    try:
        if sdk is not None:
            sdk.fn_metadata.validate_arguments(dict(arguments))
    except ValidationError as error:
        raise InvalidValue(f"the arguments do not fit tool {name!r}: {error}") from error


def retry_of(annotations: ToolAnnotations | None) -> RetryPolicy:
    """Return the retry policy of a tool. A destructive tool that is not idempotent is not run again after a crash."""
    if annotations is not None and annotations.destructive_hint and not annotations.idempotent_hint:
        return replace(DEFAULT_RETRY, on_interrupt=OnInterrupt.FAIL)
    return DEFAULT_RETRY


def check_settings(name: str | None, settings: ServedToolSettings) -> tuple[TaskPolicy, dict[str, Any]]:
    """Split settings into how calls become tasks, and how those tasks run.

    Raises:
        ConfigurationError: there is no such setting, or its value is invalid.
    """
    subject = "a tool" if name is None else f"tool {name!r}"
    known = ServedToolSettings.__annotations__.keys()
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise ConfigurationError(f"{subject} has no setting {unknown[0]!r}: use one of {', '.join(sorted(known))}")
    try:
        policy = TaskPolicy(**{key: value for key, value in settings.items() if key in POLICY_FIELDS})  # type: ignore[arg-type] # its own fields
    except ConfigurationError as error:
        raise ConfigurationError(f"{subject}: {error}") from error
    rest = {key: value for key, value in settings.items() if key not in POLICY_FIELDS}
    if name is not None:
        # Isolation is checked together with the body.
        make_tool(_any_body, name, **{key: value for key, value in rest.items() if key != "isolation"})  # type: ignore[arg-type] # likewise
    return policy, rest


async def _any_body() -> None:
    """Placeholder for settings that have no body yet."""
