"""Requests that the SDK's client does not know: the methods of tasks, and calls that ask for a task.

The SDK checks the answer to `tools/call` against what the version has for it, and has no tasks there. So that one is
sent past the check; everything else goes through the session's front door.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from mcp.client import Client
from mcp.shared.dispatcher import CallOptions  # noqa: TC002 - with the others
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, Request, Result
from pydantic import ConfigDict, ValidationError

from raincheck.client.errors import BadAnswer
from raincheck.errors import TaskNotFound

ResultT = TypeVar("ResultT", bound=Result)


class TaskRequest(Request[dict[str, Any], str]):
    """A request about one task."""

    name_param: ClassVar[str | None] = "taskId"  # for the header that names it


class Anything(Result):
    """A result of which nothing is expected."""

    model_config = ConfigDict(extra="allow")


async def ask_about(
    client: Client,
    method: str,
    task_id: str,
    answer: type[ResultT],
    **params: Any,  # noqa: ANN401 - those of the method
) -> ResultT:
    """Send a request about a task.

    Raises:
        TaskNotFound: the server does not know it, or not for this caller.
        BadAnswer: the answer is not what the protocol says.
    """
    request = TaskRequest(method=method, params={"taskId": task_id, **params})
    try:
        with reading(f"the answer to {method}"):
            return await client.session.send_request(request, answer)
    except MCPError as error:
        # Of other methods it may be something else that is wrong, or what the task itself has failed with.
        if error.error.code == INVALID_PARAMS and method == "tasks/get":
            raise TaskNotFound(task_id) from error
        raise


async def call_raw(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Call a tool, and return whatever the server answers."""
    dispatcher = client.session._dispatcher  # pyright: ignore[reportPrivateUsage] - see above
    options: CallOptions = {}
    if client.read_timeout_seconds is not None:
        options["timeout"] = client.read_timeout_seconds
    return await dispatcher.send_raw_request("tools/call", params, options)


@contextmanager
def reading(what: str) -> Generator[None]:
    """Tell of answers that are not what the protocol says.

    Raises:
        BadAnswer: that it is one.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise BadAnswer(f"{what} is ill-formed: {where}: {first['msg']}") from error


def read_result(result: object) -> CallToolResult:
    """The result of a tool.

    Raises:
        BadAnswer: it is none.
    """
    with reading("the result of the tool"):
        return CallToolResult.model_validate(result, by_name=False)


@contextmanager
def checking(tool: str) -> Generator[None]:
    """Tell of results that are not what the tool says of itself, which the SDK checks.

    Raises:
        BadAnswer: that it is one.
    """
    try:
        yield
    except RuntimeError as error:
        # The SDK has no class of its own for it.
        if not str(error).startswith((f"Tool {tool} has an output", "Invalid structured", "Invalid schema")):
            raise
        raise BadAnswer(str(error).splitlines()[0]) from error
