"""Tools that the server's own program calls, with `mcp.call_tool`: a task of whoever is being served."""

from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import CallToolResult
from pydantic_core import to_jsonable_python

from raincheck.core.owner import Owner
from raincheck.errors import ConfigurationError
from raincheck.server.callers import describe_caller, is_acting
from raincheck.server.functions import REQUEST
from raincheck.server.leaving import Leaving
from raincheck.server.results import text_of
from raincheck.server.running import UNSEEN_FOR, Running
from raincheck.server.sdk import request_of
from raincheck.server.showing import Showing


def caller_of(sdk: SdkTool, running: Running) -> Callable[..., Any]:
    """What runs where the program calls the tool. It waits for the task, which nobody else sees."""
    name, context_name = sdk.name, sdk.context_kwarg or REQUEST
    not_arguments = {context_name, *sdk.resolved_params}
    leaving, showing = Leaving(running), Showing(running)

    async def call(**values: Any) -> CallToolResult:  # noqa: ANN401 - arguments of any tool
        if is_acting():
            # It would hold its place while it waits for another task, and enough of them would wait for ever.
            raise ConfigurationError(f"a task that needs tool {name!r} calls it with `task.spawn`")
        arguments = {key: value for key, value in values.items() if key not in not_arguments}
        ctx = request_of(values[context_name])
        owner = Owner.local() if ctx is None else await running.owner_of(ctx)
        # Nobody who waits here could be asked anything.
        caller = {} if ctx is None else describe_caller(ctx)
        caller["capabilities"] = {}
        engine = running.engine
        creating = engine.submit(name, to_jsonable_python(arguments), owner=owner, caller=caller, timeout=UNSEEN_FOR)
        task = await leaving.create(creating)
        result = await showing.answer(await leaving.while_wanted(task, engine.wait(task.id, owner=owner)))
        if result.get("isError"):
            raise SdkToolError(text_of(result))
        return CallToolResult.model_validate(result)

    return call
