"""How long the tasks of each tool take: what this process has seen, and what others on the same store have told."""

import asyncio
from collections.abc import Mapping

from raincheck.core.histogram import MOST, Sketch
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.engine.submit import Means

MEASURED = frozenset({Phase.COMPLETED, Phase.FAILED})
"""How a task ends whose body had its time. One that was cancelled would have taken longer."""

FEW = 16
"""The part of what is known that new ones may make up, and not be counted up yet."""

NOTHING = Sketch()


class Durations:
    """What is known of one namespace. What is seen here counts at once, and is told to the store now and then."""

    def __init__(self, means: Means, namespace: str) -> None:
        self._means = means
        self._namespace = namespace
        self._kept: Mapping[str, Sketch] = {}
        # What is known in all of each tool that was asked for, until something of it changes.
        self._known: dict[str, Sketch] = {}
        # What the store does not have yet: not told, or being told. The latest are not counted up yet: it is done when
        # somebody asks, and not at the end of every task.
        self._latest: list[tuple[str, float]] = []
        self._news: dict[str, Sketch] = {}
        self._told: Mapping[str, Sketch] = {}
        self._telling: asyncio.Future[None] | None = None

    def note(self, task: Task) -> None:
        """A body in this process has ended this task. Said once for each."""
        if task.phase in MEASURED and task.finished_at is not None:
            self._latest.append((task.tool.name, (task.finished_at - task.created_at).total_seconds()))
            if len(self._latest) >= MOST:
                self._count()

    def of(self, tool: str) -> Sketch:
        """How long the tasks of a tool take. The more are known, the more new ones it takes to be counted up."""
        known = self._known.get(tool)
        if known is not None and len(self._latest) * FEW <= known.total:
            return known
        self._count()
        known = self._kept.get(tool, NOTHING)
        for more in (self._told.get(tool), self._news.get(tool)):
            known = known if more is None else known.merged(more)
        self._known[tool] = known
        return known

    @property
    def has_news(self) -> bool:
        """Whether there is something that the store does not have."""
        return bool(self._latest or self._news or self._told)

    async def refresh(self) -> None:
        """Tell the store what is new, and hear what others have told it.

        Raises:
            StoreError: it can't be told now. What is new stays so.
        """
        while self._telling is not None:
            await asyncio.wait([self._telling])
        # In a job of its own: if whoever waits for it gives up, it must not be unclear what was kept.
        self._telling = asyncio.ensure_future(self._tell())
        await asyncio.shield(self._telling)

    def _count(self) -> None:
        latest: dict[str, list[float]] = {}
        for tool, took in self._latest:
            latest.setdefault(tool, []).append(took)
        self._latest.clear()
        self._known.clear()
        for tool, seconds in latest.items():
            self._news[tool] = self._news.get(tool, NOTHING).with_all(seconds)

    async def _tell(self) -> None:
        self._count()
        self._told, self._news = self._news, {}
        try:
            self._kept = await self._means.store.learn(self._namespace, self._told)
        except BaseException:
            for tool, sketch in self._told.items():
                self._news[tool] = sketch.merged(self._news.get(tool, NOTHING))
            raise
        finally:
            self._told, self._telling = {}, None
            self._known.clear()
