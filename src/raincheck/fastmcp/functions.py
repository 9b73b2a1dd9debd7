"""Functions of the server's author that become tools of FastMCP whose calls become tasks.

FastMCP makes the tool: its schema, what is injected into it, what becomes of its result. It sees the function without
its task parameter, and calls it with the task where it runs as one.
"""

import inspect
from typing import Any

from fastmcp.server.dependencies import without_injected_parameters
from fastmcp.tools import FunctionTool, Tool
from pydantic import PydanticSchemaGenerationError, PydanticUserError

from raincheck.engine.tool_checks import check_body, context_parameters, is_coroutine_function
from raincheck.errors import ConfigurationError
from raincheck.fastmcp.body import running_task
from raincheck.fastmcp.face import Face
from raincheck.server.enabled import handler_body
from raincheck.server.functions import AnyFunction, ServedFunction
from raincheck.server.workplace import Workplace


class FastFunction(ServedFunction):
    """A function of the server's author, as a tool of FastMCP."""

    def __init__(self, fn: AnyFunction, name: str, face: Face, workplace: Workplace, **listed: Any) -> None:  # noqa: ANN401 # pyright: ignore[reportMissingSuperCall] - as FastMCP has them, and it makes the tool
        self.fn = fn
        self.name = name
        self._workplace = workplace
        check_body(name, fn, is_isolated=False)
        self._task_name = next(iter(context_parameters(fn)), None)
        self.is_async = is_coroutine_function(fn)
        self.signature = self._signature()
        self.tool = self._made(listed)
        self.sdk = face.catalogue.described(self.tool)

    def body(self, isolation: str | None) -> AnyFunction:
        if isolation is None:
            return handler_body(self.name, self._never, self._workplace)
        if self._takes_what_is_injected():
            raise ConfigurationError(
                f"tool {self.name!r} runs in a process of its own, where there is no server: it can take a "
                f"TaskContext, and nothing that FastMCP injects"
            )
        return ServedFunction(self.fn, self.name, self._workplace).body(isolation)

    def _made(self, listed: dict[str, Any]) -> FunctionTool:
        try:
            return Tool.from_function(self.stand_in(self._run), name=self.name, **listed)
        except (TypeError, ValueError, PydanticUserError, PydanticSchemaGenerationError) as error:
            raise ConfigurationError(f"tool {self.name!r} can't be listed: {error}") from error

    async def _run(self, **given: Any) -> Any:  # noqa: ANN401 - whatever it takes and returns
        return await self._call(running_task(self.name), given)

    def _takes_what_is_injected(self) -> bool:
        return inspect.signature(without_injected_parameters(self.tool.fn)).parameters.keys() != (
            self.signature.parameters.keys()
        )

    async def _never(self, *_: object) -> None:
        """A FastMCP server runs its tools by their names."""
