"""Working for servers: running the tasks that they took, until a signal says that it is over."""

from collections.abc import Callable
from dataclasses import dataclass

from raincheck.address import MemoryAddress
from raincheck.cli.databases import shown_store
from raincheck.engine.shutdown import signals
from raincheck.errors import ConfigurationError
from raincheck.opening import find_address
from raincheck.server import Tasks


@dataclass(frozen=True, slots=True)
class Post:
    """What a worker is there for."""

    name: str
    """The server's."""
    namespace: str
    store: str
    tools: list[str]
    concurrency: int

    def __str__(self) -> str:
        many = "1 tool" if len(self.tools) == 1 else f"{len(self.tools)} tools"
        idle = "" if self.tools else ". None of the server's tools runs as tasks, so there is nothing to do"
        return f"worker of {self.namespace!r} on {self.store}: {many}, {self.concurrency} at once{idle}"


def check_shared(tasks: Tasks) -> None:
    """Refuse a store that no server could put tasks into.

    Raises:
        ConfigurationError: it is in the memory of this process.
    """
    if isinstance(find_address(tasks.options.store), MemoryAddress):
        raise ConfigurationError(
            "a worker on memory: has nobody to work for, since no other process sees what is kept there: name the "
            "store that the server uses, as in --store postgresql://user@host/database"
        )


async def work(tasks: Tasks, works: Callable[[Post], None]) -> None:
    """Run tasks, and serve nobody, until a signal comes. What has not ended then is handed back; a second one hurries.

    `works` is told when it does.

    Raises:
        ConfigurationError, StoreError: it can't be started.
    """
    options = tasks.options
    with signals(tasks.hurry) as told:
        async with tasks.running() as engine:
            tools = sorted({tool.name for tool in engine.toolbox.only(options.settings.queues)})
            store = shown_store(options.store)
            works(Post(tasks.server.name, engine.namespace, store, tools, options.settings.concurrency))
            await told.wait()
