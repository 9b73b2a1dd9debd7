"""The engine: tools on a store. It takes tasks, runs them, and tells what became of them."""

import asyncio
from datetime import datetime
from typing import Self

from raincheck.clock import Clock, SystemClock
from raincheck.core.change import Creation
from raincheck.core.records import Task
from raincheck.engine.calls import Calls
from raincheck.engine.durations import Durations
from raincheck.engine.finding import refuse_while_loading
from raincheck.engine.machinery import Machinery
from raincheck.engine.means import Means
from raincheck.engine.recalling import recall
from raincheck.engine.settings import Settings
from raincheck.engine.toolbox import Toolbox
from raincheck.errors import ConfigurationError
from raincheck.stores.interface import Store


class Engine(Calls):
    """Runs tasks with the tools of a toolbox, in this process, beside any others on the same store.

        async with open_store("tasks.db") as store, Engine(store, toolbox) as engine:
            task = await engine.submit("build_report", {"year": 2026})
            print(await engine.result(task.id))

    `namespace` keeps the tasks of unrelated servers on one store apart. With `works=False` it takes tasks and answers
    for them, and leaves the running to other processes.
    """

    def __init__(
        self,
        store: Store,
        toolbox: Toolbox,
        *,
        namespace: str = "default",
        settings: Settings | None = None,
        clock: Clock | None = None,
        works: bool = True,
    ) -> None:
        if not hasattr(store, "listen"):
            raise ConfigurationError(
                f"an engine takes an open store, not {store!r}: `async with open_store(…) as store, Engine(store, …)`"
            )
        settings = settings or Settings()
        clock = clock or store.capabilities.clock or SystemClock()
        super().__init__(Means(store, clock, settings.limits), namespace, toolbox, settings)
        self.durations = Durations(self._means, namespace)
        """How long tasks take, by tool."""
        self._works = works
        self._machinery: Machinery | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.recall()
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        """Begin to run tasks, those too that another process left behind.

        Raises:
            ConfigurationError: it runs already.
        """
        refuse_while_loading("an engine")
        if self._machinery is not None:
            raise ConfigurationError("this engine runs already: make another one, or stop it first")
        machinery = Machinery(
            self._means,
            self.namespace,
            self.toolbox,
            self._settings,
            self._wakeups,
            self.durations,
            works=self._works,
        )
        machinery.start()
        self._machinery = machinery

    async def recall(self) -> None:
        """Keep what the tools are made of that files define, and take in older ones that tasks wait for."""
        await recall(self._means.store, self.namespace, self.toolbox)

    async def stop(self) -> None:
        """Stop in good order: what has not ended within its grace goes back to the queue, for another process."""
        if self._machinery is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._machinery.stop())
        stopping = self._stopping
        # Shielded, so that a caller who is cancelled in the middle does not leave half of it running.
        await asyncio.shield(stopping)
        # Of several who wait for it, the first to go on may have started it again.
        if self._stopping is stopping:
            self._machinery = self._stopping = None

    def _keep(self, creation: Creation, now: datetime) -> asyncio.Future[Task]:
        begun = None if self._machinery is None else self._machinery.begin(creation, now)
        return super()._keep(creation, now) if begun is None else begun

    def hurry(self) -> None:
        """While it stops: wait no longer for bodies to end by themselves."""
        if self._machinery is not None:
            self._machinery.hurry()
