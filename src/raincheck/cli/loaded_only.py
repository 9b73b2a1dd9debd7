"""Keeping a module from running its server while it is loaded: it would be waited for in vain."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NoReturn

import anyio
from mcp.server.mcpserver import MCPServer

RUNS = ("run", "run_stdio_async", "run_sse_async", "run_streamable_http_async")


class RunsServer(Exception):
    """A module runs its server as soon as it is loaded."""


@contextmanager
def loaded_only(is_server: Callable[[object], bool]) -> Generator[None]:
    """Meanwhile, whoever runs a server is told that this is not the moment.

    That is all there is of `MCPServer`. Servers that are built on the SDK, such as those of FastMCP, may not even be
    imported yet: they are known by what they have an event loop run.
    """
    run = anyio.run

    def run_others(work: Callable[..., Any], *rest: Any, **options: Any) -> Any:  # noqa: ANN401 - as in anyio
        if is_server(_whose(work)):
            _refuse()
        return run(work, *rest, **options)

    with ExitStack() as put_back:
        for owner, name, instead in [*((MCPServer, name, _refuse) for name in RUNS), (anyio, "run", run_others)]:
            put_back.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, instead)
        yield


def _refuse(*_: object, **_options: object) -> NoReturn:
    raise RunsServer


def _whose(work: Callable[..., Any]) -> object:
    while isinstance(work, partial):
        work = work.func
    return getattr(work, "__self__", None)
