"""The engine: tools on a store. It takes tasks, runs them, and tells what became of them."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Self

from raincheck.clock import Clock, SystemClock
from raincheck.core.commands import Cancel, Command, Pause, Resume
from raincheck.core.content import View
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import Json, encode
from raincheck.core.records import Task, TaskId
from raincheck.core.text import check_name
from raincheck.engine.creation import Request, create_task
from raincheck.engine.desk import Ended
from raincheck.engine.hold import Means
from raincheck.engine.machinery import Machinery
from raincheck.engine.reply import result_of
from raincheck.engine.settings import Settings
from raincheck.engine.timing import first_of
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.wakeups import Wakeups
from raincheck.errors import ConfigurationError
from raincheck.stores.apply import answer, apply
from raincheck.stores.interface import Store

ME = Owner.local()


class Engine:
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
        check_name(namespace, what="a namespace")
        self.toolbox = toolbox
        self.namespace = namespace
        self._settings = settings or Settings()
        self._means = Means(store, clock or SystemClock(), self._settings.limits)
        self._wakeups = Wakeups()
        self._works = works
        self._machinery: Machinery | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        """Begin to run tasks, those too that another process left behind.

        Raises:
            ConfigurationError: it runs already.
        """
        if self._machinery is not None:
            raise ConfigurationError("this engine runs already: make another one, or stop it first")
        self._machinery = Machinery(
            self._means, self.namespace, self.toolbox, self._settings, self._wakeups, works=self._works
        )
        self._machinery.start()

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

    def hurry(self) -> None:
        """While it stops: wait no longer for bodies to end by themselves."""
        if self._machinery is not None:
            self._machinery.hurry()

    async def submit(
        self,
        tool: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        owner: Owner = ME,
        caller: Json = None,
        idempotency_key: str | None = None,
        ttl: timedelta | None = None,
    ) -> Task:
        """Ask for a task. When this returns, it is kept, and will run.

        Raises:
            UnknownTool, InvalidValue: the tool, or its arguments, can't be had.
            QuotaExceeded: the owner has too many tasks.
            IdempotencyConflict: the key was used for something else.
        """
        request = Request(
            self.namespace,
            owner,
            None if caller is None else encode(caller, what="the caller's identity"),
            idempotency_key=idempotency_key,
            ttl=ttl,
        )
        now = self._means.clock.now()
        found = self.toolbox.get(tool)
        creation = create_task(found, arguments or {}, request, now=now, limits=self._means.limits)
        return await self._means.store.create(creation, quota=self._settings.quota, now=now)

    async def view(self, task_id: TaskId, *, owner: Owner = ME) -> View:
        """The task, its outcome if it has ended, its open questions if not.

        Raises:
            TaskNotFound: as everywhere: unknown, expired, or somebody else's.
        """
        return await self._means.store.view(task_id, self._scope(owner), now=self._means.clock.now())

    async def wait(
        self,
        task_id: TaskId,
        *,
        owner: Owner = ME,
        until: Callable[[Task], bool] = lambda task: task.is_terminal,
    ) -> View:
        """Wait until the task has ended or, with `until`, until something else is so.

        Raises:
            TaskNotFound: there is no such task, or there is none any more.
        """
        with self._wakeups.waiting_for(task_id) as woken:
            while True:
                woken.clear()
                view = await self.view(task_id, owner=owner)
                if view.task.is_terminal or until(view.task):
                    return view
                await first_of(woken.wait(), self._means.clock.sleep(self._settings.look_every))

    async def result(self, task_id: TaskId, *, owner: Owner = ME) -> Json:
        """Wait until the task has ended, and return its result.

        Raises:
            TaskFailed: it has none, or it reports an error.
            TaskNotFound: there is no such task, or there is none any more.
        """
        return result_of(task_id, Ended.of(await self.wait(task_id, owner=owner)))

    async def answer(
        self, task_id: TaskId, answers: Mapping[str, Json], *, owner: Owner = ME, actor: str = "caller"
    ) -> Task:
        """Answer open questions by their keys: `{"elicit-0": {"action": "accept", "content": {...}}}`.

        Keys that are unknown, or answered already, are ignored.
        """
        now, limits = self._means.clock.now(), self._means.limits
        payloads = {key: encode(value, what=f"the answer to {key!r}") for key, value in answers.items()}
        scope = self._scope(owner)
        return await answer(self._means.store, task_id, scope, payloads, actor=actor, now=now, limits=limits)

    async def cancel(
        self, task_id: TaskId, *, owner: Owner = ME, actor: str = "caller", reason: str | None = None
    ) -> Task:
        """Stop the task and its children for good, whatever process they run in.

        Raises:
            IllegalTransition: it has ended already.
        """
        return await self._apply(task_id, owner, Cancel(actor, reason))

    async def pause(
        self, task_id: TaskId, *, owner: Owner = ME, actor: str = "caller", reason: str | None = None
    ) -> Task:
        """Hold the task back. One that runs stops at its next checkpoint."""
        return await self._apply(task_id, owner, Pause(actor, reason))

    async def resume(self, task_id: TaskId, *, owner: Owner = ME, actor: str = "caller") -> Task:
        """Let a paused task go on."""
        return await self._apply(task_id, owner, Resume(actor))

    async def _apply(self, task_id: TaskId, owner: Owner, command: Command) -> Task:
        now = self._means.clock.now()
        return await apply(self._means.store, task_id, self._scope(owner), command, now=now)

    def _scope(self, owner: Owner) -> Scope:
        return Scope.of(self.namespace, owner)
