"""The engine: creates tasks on a store, runs them, and reports their results."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Self

from raincheck.clock import Clock, SystemClock
from raincheck.core.change import Creation
from raincheck.core.commands import Command, Pause, Resume
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import HistoryEntry, Task, TaskId, View
from raincheck.core.values import Json, check_name, decode, encode
from raincheck.engine.durations import Durations
from raincheck.engine.follow import TaskFollower, WaiterRegistry
from raincheck.engine.inputs import TaskOutcome, check_answer, error_answer, result_or_raise
from raincheck.engine.instances import WorkflowInstances
from raincheck.engine.isolation.function_ref import forbid_while_loading
from raincheck.engine.settings import Settings
from raincheck.engine.tool import EngineDeps, StoreObserver, create_task
from raincheck.engine.toolbox import Toolbox, sync_definitions
from raincheck.engine.worker.supervisor import Supervisor
from raincheck.errors import ConfigurationError, ProtocolError
from raincheck.stores.base import Store
from raincheck.stores.commit import answer, apply
from raincheck.stores.requests import PAGE_LIMIT, Page, PageCursor, TaskQuery

LOCAL_OWNER = Owner.local()


class Engine:
    """Runs tasks with the tools of a toolbox in this process, next to other processes on the same store.

        async with open_store("tasks.db") as store, Engine(store, toolbox) as engine:
            task = await engine.submit("build_report", {"year": 2026})
            print(await engine.result(task.id))

    `namespace` separates the tasks of unrelated servers on one store. With `works=False`, the engine creates and serves
    tasks, and leaves running them to other processes. `observer` is notified of what the engine stores.

    Every method that takes an owner sees only that owner's tasks. Any other task raises `TaskNotFound`, as if it did
    not exist.
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
        observer: StoreObserver | None = None,
    ) -> None:
        if not hasattr(store, "listen"):
            raise ConfigurationError(
                f"an engine needs an open store, not {store!r}: `async with open_store(…) as store, Engine(store, …)`"
            )
        check_name(namespace, what="a namespace")
        self.namespace = namespace
        self.toolbox = toolbox
        clock = clock or store.capabilities.clock or SystemClock()
        self._deps = EngineDeps(store, clock, namespace, toolbox, settings or Settings(), observer)
        self._waiters = WaiterRegistry()
        self.instances = WorkflowInstances(self._deps)
        self.durations = Durations(self._deps)
        """How long tasks take, by tool."""
        self._works = works
        self._supervisor: Supervisor | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.sync_definitions()
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        """Start running tasks, including unfinished tasks of processes that have stopped.

        Raises:
            ConfigurationError: the engine is already running.
        """
        forbid_while_loading("an engine")
        if self._supervisor is not None:
            raise ConfigurationError("this engine is already running: stop it first, or create another engine")
        supervisor = Supervisor(self._deps, self._waiters, self.durations, works=self._works)
        supervisor.start()
        self._supervisor = supervisor

    async def sync_definitions(self) -> None:
        """Store the definitions of tools that come from files, and load older versions that live tasks need."""
        await sync_definitions(self._deps.store, self.namespace, self.toolbox)

    async def stop(self) -> None:
        """Shut down gracefully. Tasks that do not end within their grace period return to the queue."""
        if self._supervisor is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._supervisor.stop())
        stopping = self._stopping
        # Shielded, so that cancelling the caller does not leave the shutdown half done.
        await asyncio.shield(stopping)
        # If several callers wait, the first to resume may have started the engine again.
        if self._stopping is stopping:
            self._supervisor = self._stopping = None

    def skip_grace(self) -> None:
        """During a stop: do not wait any longer for bodies to end by themselves."""
        if self._supervisor is not None:
            self._supervisor.skip_grace()

    def submit(
        self,
        tool: str,
        arguments: Mapping[str, Json] | None = None,
        *,
        owner: Owner = LOCAL_OWNER,
        caller: Json = None,
        idempotency_key: str | None = None,
        ttl: timedelta | None = None,
        timeout: timedelta | None = None,
        validate: bool = True,
    ) -> asyncio.Future[Task]:
        """Submit a task. The awaited task is stored and will run; it may already be running.

        `timeout` bounds the whole task, in addition to the tool's own timeout. A caller that has already validated the
        arguments against the tool's schema passes `validate=False`.

        Raises:
            UnknownTool, InvalidValue: the tool does not exist, or its arguments are invalid.
            QuotaExceeded: the owner has too many tasks.
            IdempotencyConflict: the key was used for a different request.
        """
        creation = create_task(
            self._deps,
            self.toolbox.get(tool),
            arguments or {},
            owner,
            caller=None if caller is None else encode(caller, what="the caller's identity"),
            idempotency_key=idempotency_key,
            ttl=ttl,
            timeout=timeout,
            validate=validate,
        )
        started = None if self._supervisor is None else self._supervisor.try_start(creation)
        return asyncio.ensure_future(self._store(creation)) if started is None else started

    async def view(self, task_id: str, *, owner: Owner = LOCAL_OWNER) -> View:
        """Return the task, with its outcome if it has ended or its open input requests if it has not.

        Raises:
            TaskNotFound: the task is unknown, has expired, or belongs to another owner (as in every method).
        """
        return await self._deps.store.view(TaskId(task_id), self._scope(owner), now=self._deps.clock.now())

    async def task(self, task_id: str, *, owner: Owner = LOCAL_OWNER) -> Task:
        """Return the task without its outcome and input requests. This is cheaper than `view`."""
        return await self._deps.store.load(TaskId(task_id), self._scope(owner), now=self._deps.clock.now())

    async def wait(
        self,
        task_id: str,
        *,
        owner: Owner = LOCAL_OWNER,
        until: Callable[[Task], bool] = lambda task: task.is_terminal,
    ) -> View:
        """Wait until the task has ended or until the predicate `until` holds.

        Raises:
            TaskNotFound: the task does not exist, or no longer exists.
            ConfigurationError: the engine is not running.
        """
        async with aclosing(self.follow(task_id, owner=owner)) as views:
            async for view in views:
                if view.task.is_terminal or until(view.task):
                    return view
        raise AssertionError("a task is followed to its end")

    def follow(
        self, task_id: str, *, owner: Owner = LOCAL_OWNER, last_seen: Task | None = None, timeout: float | None = None
    ) -> AsyncGenerator[View]:
        """Yield the task now and after each change, until it has ended. Changes in quick succession are coalesced.

        A caller that has just submitted the task passes it as `last_seen`: while it is unchanged, it is neither read
        nor yielded again. With `timeout`, the iteration also ends after this many seconds.

        Raises:
            TaskNotFound: the task does not exist, or no longer exists.
            ConfigurationError: the engine is not running.
        """
        return self._follower(owner).follow([TaskId(task_id)], last_seen, must_exist=True, timeout=timeout)

    def follow_all(self, task_ids: Iterable[str], *, owner: Owner = LOCAL_OWNER) -> AsyncGenerator[View]:
        """Follow many tasks at once, until all have ended. Tasks that do not exist, or no longer exist, are skipped."""
        return self._follower(owner).follow(map(TaskId, task_ids))

    async def result(self, task_id: str, *, owner: Owner = LOCAL_OWNER) -> Json:
        """Wait until the task has ended, and return its result.

        Raises:
            TaskFailed: the task has no result, or its result is an error.
            TaskNotFound: the task does not exist, or no longer exists.
        """
        return result_or_raise(task_id, TaskOutcome.from_view(await self.wait(task_id, owner=owner)))

    async def history(
        self, task_id: str, *, owner: Owner = LOCAL_OWNER, after: int = 0, limit: int = PAGE_LIMIT
    ) -> tuple[HistoryEntry, ...]:
        """Return the task's history after a given entry, oldest first.

        The `detail` of an entry is for the operator: it holds the traceback of a failed attempt.
        """
        now = self._deps.clock.now()
        return await self._deps.store.history(TaskId(task_id), self._scope(owner), now=now, after=after, limit=limit)

    async def artifact(self, task_id: str, name: str, *, owner: Owner = LOCAL_OWNER) -> Json:
        """Return an artifact that the task has stored; None if there is none of that name."""
        now = self._deps.clock.now()
        found = await self._deps.store.artifact(TaskId(task_id), name, self._scope(owner), now=now)
        return None if found is None else decode(found.content)

    async def list_tasks(
        self, *, owner: Owner = LOCAL_OWNER, tool: str | None = None, after: PageCursor | None = None, limit: int = 100
    ) -> Page:
        """List the owner's tasks, newest first. Pass `after=page.next` for the next page."""
        query = TaskQuery(self._scope(owner), tool=tool)
        return await self._deps.store.list_tasks(query, now=self._deps.clock.now(), after=after, limit=limit)

    async def answer(
        self, task_id: str, answers: Mapping[str, Json], *, owner: Owner = LOCAL_OWNER, actor: str = "caller"
    ) -> Task:
        """Answer open input requests by their keys: `{"elicit-0": {"action": "accept", "content": {...}}}`.

        Keys that are unknown or already answered are ignored.

        Raises:
            InvalidValue: an answer does not match its request. All the requests stay open.
        """
        for input_request in (await self.view(task_id, owner=owner)).inputs:
            if input_request.key in answers:
                # In a thread: the validator is imported on first use, which reads the disk.
                await asyncio.to_thread(check_answer, input_request, answers[input_request.key])
        return await self._answer(task_id, answers, owner, actor)

    async def answer_with_error(
        self, task_id: str, key: str, error: ProtocolError, *, owner: Owner = LOCAL_OWNER, actor: str = "caller"
    ) -> Task:
        """Answer an open input request with an error, which the body receives in place of an answer."""
        return await self._answer(task_id, {key: error_answer(error)}, owner, actor)

    async def _answer(self, task_id: str, answers: Mapping[str, Json], owner: Owner, actor: str) -> Task:
        payloads = {key: encode(value, what=f"the answer to {key!r}") for key, value in answers.items()}
        now, limits, scope = self._deps.clock.now(), self._deps.settings.limits, self._scope(owner)
        return await answer(
            self._deps.store,
            TaskId(task_id),
            scope,
            payloads,
            actor=actor,
            now=now,
            limits=limits,
            on_commit=self._deps.on_commit,
        )

    async def cancel(
        self, task_id: str, *, owner: Owner = LOCAL_OWNER, actor: str = "caller", reason: str | None = None
    ) -> Task:
        """Cancel the task and its children, in whichever process they run.

        Raises:
            IllegalTransition: the task has already ended.
            CancelRefused: the task is a workflow instance, and its workflow does not allow it.
        """
        return await self.instances.cancel(task_id, owner, actor, reason)

    async def pause(
        self, task_id: str, *, owner: Owner = LOCAL_OWNER, actor: str = "caller", reason: str | None = None
    ) -> Task:
        """Pause the task. If it is running, it stops at its next checkpoint."""
        return await self._apply(task_id, owner, Pause(actor, reason))

    async def resume(self, task_id: str, *, owner: Owner = LOCAL_OWNER, actor: str = "caller") -> Task:
        """Resume a paused task."""
        return await self._apply(task_id, owner, Resume(actor))

    async def _store(self, creation: Creation) -> Task:
        quota, now = self._deps.settings.quota, creation.task.created_at
        task = await self._deps.store.create(creation, quota=quota, now=now)
        if self._deps.observer is not None:
            self._deps.observer.on_create(creation, task)
        return task

    async def release_key(self, task: Task) -> None:
        """Release the task's idempotency key for use by another task. The task itself does not change."""
        await self._deps.store.release_key(task.id, task.idempotency_key or "")

    def _follower(self, owner: Owner) -> TaskFollower:
        return TaskFollower(self._deps, self._waiters, self._scope(owner))

    async def _apply(self, task_id: str, owner: Owner, command: Command) -> Task:
        deps, scope = self._deps, self._scope(owner)
        return await apply(deps.store, TaskId(task_id), scope, command, now=deps.clock.now(), on_commit=deps.on_commit)

    def _scope(self, owner: Owner) -> Scope:
        return Scope.for_owner(self.namespace, owner)
