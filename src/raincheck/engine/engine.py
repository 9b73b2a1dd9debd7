"""The engine: tools on a store. It takes tasks, runs them, and tells what became of them.

What can be asked of tasks from outside: ask for one, look at it, wait for it, answer it, steer it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Self

from raincheck.clock import Clock, SystemClock
from raincheck.core.change import Creation
from raincheck.core.commands import Command, Pause, Resume
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import Json, decode, encode
from raincheck.core.records import HistoryEntry, Task, TaskId, View
from raincheck.core.validation import check_name
from raincheck.engine.durations import Durations
from raincheck.engine.execution.api import Ended
from raincheck.engine.follow import Following, Wakeups
from raincheck.engine.inputs import check_answer, refusal, result_of
from raincheck.engine.instances import Processes
from raincheck.engine.isolation.function_ref import refuse_while_loading
from raincheck.engine.settings import Settings
from raincheck.engine.submit import Means, Request, create_task
from raincheck.engine.toolbox import Toolbox, recall
from raincheck.engine.worker.supervisor import Machinery
from raincheck.errors import ConfigurationError, ProtocolError
from raincheck.stores.base import Store
from raincheck.stores.commit import answer, apply
from raincheck.stores.requests import PAGE_LIMIT, Page, Position, TaskQuery

ME = Owner.local()


class Calls:
    """The tasks of one namespace, as their owners see them.

    Everything takes an owner, and shows only what is theirs: the rest is `TaskNotFound`, as if it were not there.
    """

    def __init__(self, means: Means, namespace: str, toolbox: Toolbox, settings: Settings) -> None:
        check_name(namespace, what="a namespace")
        self.namespace = namespace
        self.toolbox = toolbox
        self._means = means
        self._settings = settings
        self._wakeups = Wakeups()
        self.processes = Processes(means, namespace, toolbox)

    def submit(
        self,
        tool: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        owner: Owner = ME,
        caller: Json = None,
        idempotency_key: str | None = None,
        ttl: timedelta | None = None,
        timeout: timedelta | None = None,
        checks: bool = True,
    ) -> asyncio.Future[Task]:
        """Ask for a task, and await it. Then it is kept, and will run; perhaps it does so already.

        `timeout` bounds the whole of it, besides the tool's own. Whoever has held the arguments against the tool's
        schema already says so with `checks=False`.

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
            timeout=timeout,
        )
        now = self._means.clock.now()
        found = self.toolbox.get(tool)
        creation = create_task(found, arguments or {}, request, now=now, limits=self._means.limits, checks=checks)
        return self._keep(creation, now)

    async def view(self, task_id: str, *, owner: Owner = ME) -> View:
        """The task, its outcome if it has ended, its open questions if not.

        Raises:
            TaskNotFound: as everywhere: unknown, expired, or somebody else's.
        """
        return await self._means.store.view(TaskId(task_id), self._scope(owner), now=self._means.clock.now())

    async def task(self, task_id: str, *, owner: Owner = ME) -> Task:
        """The task alone: cheaper than a view of it."""
        return await self._means.store.load(TaskId(task_id), self._scope(owner), now=self._means.clock.now())

    async def wait(
        self,
        task_id: str,
        *,
        owner: Owner = ME,
        until: Callable[[Task], bool] = lambda task: task.is_terminal,
    ) -> View:
        """Wait until the task has ended or, with `until`, until something else is so.

        Raises:
            TaskNotFound: there is no such task, or there is none any more.
            ConfigurationError: the engine does not run.
        """
        async with aclosing(self.follow(task_id, owner=owner)) as views:
            async for view in views:
                if view.task.is_terminal or until(view.task):
                    return view
        raise AssertionError("a task is followed to its end")

    def follow(
        self, task_id: str, *, owner: Owner = ME, known: Task | None = None, within: float | None = None
    ) -> AsyncGenerator[View]:
        """The task as it is, and again after each change, until it has ended. Changes in quick succession are one.

        Whoever has just submitted it gives it along as `known`: while nothing has happened to it, that need not be read
        and told. With `within`, it also ends after so many seconds.

        Raises:
            TaskNotFound: there is no such task, or there is none any more.
            ConfigurationError: the engine does not run.
        """
        return self._following(owner).one(TaskId(task_id), known, within)

    def follow_all(self, task_ids: Iterable[str], *, owner: Owner = ME) -> AsyncGenerator[View]:
        """The same for many at once, until all have ended. What is not there, or not any more, is left out."""
        return self._following(owner).many(map(TaskId, task_ids))

    async def result(self, task_id: str, *, owner: Owner = ME) -> Json:
        """Wait until the task has ended, and return its result.

        Raises:
            TaskFailed: it has none, or it reports an error.
            TaskNotFound: there is no such task, or there is none any more.
        """
        return result_of(task_id, Ended.of(await self.wait(task_id, owner=owner)))

    async def history(
        self, task_id: str, *, owner: Owner = ME, after: int = 0, limit: int = PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        """What happened to the task, oldest first, from a place on.

        The `detail` of an entry is for the operator: it has the traceback of an attempt that went wrong.
        """
        now = self._means.clock.now()
        return await self._means.store.history(TaskId(task_id), self._scope(owner), now=now, after=after, limit=limit)

    async def artifact(self, task_id: str, name: str, *, owner: Owner = ME) -> Json:
        """An intermediate result that the task has kept; None if there is none of that name."""
        now = self._means.clock.now()
        found = await self._means.store.artifact(TaskId(task_id), name, self._scope(owner), now=now)
        return None if found is None else decode(found.content)

    async def list_tasks(
        self, *, owner: Owner = ME, tool: str | None = None, after: Position | None = None, limit: int = 100
    ) -> Page:
        """The owner's tasks, newest first, a page at a time: go on with `after=page.next`."""
        query = TaskQuery(self._scope(owner), tool=tool)
        return await self._means.store.list_tasks(query, now=self._means.clock.now(), after=after, limit=limit)

    async def answer(
        self, task_id: str, answers: Mapping[str, Json], *, owner: Owner = ME, actor: str = "caller"
    ) -> Task:
        """Answer open questions by their keys: `{"elicit-0": {"action": "accept", "content": {...}}}`.

        Keys that are unknown, or answered already, are ignored.

        Raises:
            InvalidValue: an answer is not what was asked for. All the questions stay open.
        """
        for question in (await self.view(task_id, owner=owner)).inputs:
            if question.key in answers:
                # In a thread: what checks it is imported when it is first needed, and that reads the disk.
                await asyncio.to_thread(check_answer, question, answers[question.key])
        return await self._answer(task_id, answers, owner, actor)

    async def refuse(
        self, task_id: str, key: str, error: ProtocolError, *, owner: Owner = ME, actor: str = "caller"
    ) -> Task:
        """Answer an open question with an error, which the body gets in the place of an answer."""
        return await self._answer(task_id, {key: refusal(error)}, owner, actor)

    async def _answer(self, task_id: str, answers: Mapping[str, Json], owner: Owner, actor: str) -> Task:
        payloads = {key: encode(value, what=f"the answer to {key!r}") for key, value in answers.items()}
        now, limits, scope = self._means.clock.now(), self._means.limits, self._scope(owner)
        return await answer(self._means.store, TaskId(task_id), scope, payloads, actor=actor, now=now, limits=limits)

    async def cancel(
        self, task_id: str, *, owner: Owner = ME, actor: str = "caller", reason: str | None = None
    ) -> Task:
        """Stop the task and its children for good, whatever process they run in.

        Raises:
            IllegalTransition: it has ended already.
            CancelRefused: it is a process, and its workflow does not allow it.
        """
        return await self.processes.cancel(task_id, owner, actor, reason)

    async def pause(self, task_id: str, *, owner: Owner = ME, actor: str = "caller", reason: str | None = None) -> Task:
        """Hold the task back. One that runs stops at its next checkpoint."""
        return await self._apply(task_id, owner, Pause(actor, reason))

    async def resume(self, task_id: str, *, owner: Owner = ME, actor: str = "caller") -> Task:
        """Let a paused task go on."""
        return await self._apply(task_id, owner, Resume(actor))

    def _keep(self, creation: Creation, now: datetime) -> asyncio.Future[Task]:
        return asyncio.ensure_future(self._means.store.create(creation, quota=self._settings.quota, now=now))

    async def release_key(self, task: Task) -> None:
        """Let the task's idempotency key be used for another one. The task itself stays as it is."""
        await self._means.store.release_key(task.id, task.idempotency_key or "")

    def _following(self, owner: Owner) -> Following:
        return Following(self._means, self._wakeups, self._scope(owner), self._settings.look_every)

    async def _apply(self, task_id: str, owner: Owner, command: Command) -> Task:
        now = self._means.clock.now()
        return await apply(self._means.store, TaskId(task_id), self._scope(owner), command, now=now)

    def _scope(self, owner: Owner) -> Scope:
        return Scope.of(self.namespace, owner)


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
