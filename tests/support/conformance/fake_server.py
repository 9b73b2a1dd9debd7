"""A small server that implements the tasks of 2025-11-25 correctly, to test the suite with.

It does not use raincheck. Each method does one thing, so that overriding it plants a fault: see `faults/`.
"""

import asyncio
import itertools
import secrets
from collections.abc import Coroutine
from typing import Any

from tests.support.conformance.fake_task import (
    BROKEN,
    CANCELLED,
    IMMEDIATE,
    INVALID,
    MAX_TTL,
    NOT_FOUND,
    PAGE,
    RELATED,
    SLOW,
    STEP,
    STEPS,
    SUPPORT,
    Message,
    Rejected,
    Session,
    Task,
    is_object,
    stamp,
    text,
)


class FakeServer:
    """The server, independent of its transport."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.sessions: list[Session] = []
        self.numbers = itertools.count(1)
        self.waiting: dict[object, asyncio.Future[Message]] = {}
        self.requests: dict[tuple[int, object], asyncio.Task[None]] = {}
        self.background_tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        background_task = asyncio.create_task(work)
        self.background_tasks.add(background_task)
        background_task.add_done_callback(self.background_tasks.discard)
        return background_task

    async def close(self) -> None:
        for background_task in list(self.background_tasks):
            background_task.cancel()
        await asyncio.gather(*self.background_tasks, return_exceptions=True)

    # Incoming messages

    async def handle(self, session: Session, message: Message) -> None:
        if "method" not in message:
            self.take_answer(message)
        elif "id" in message:
            response = self.spawn(self.respond(session, message))
            self.requests[id(session), message["id"]] = response
            response.add_done_callback(lambda _: self.requests.pop((id(session), message["id"]), None))
        elif message["method"] == "notifications/cancelled":
            self.cancel_request(session, message["params"]["requestId"])

    def take_answer(self, message: Message) -> None:
        future = self.waiting.pop(message["id"], None)
        if future is not None and not future.done():
            future.set_result(message.get("result", {}))

    def cancel_request(self, session: Session, request_id: object) -> None:
        if (response := self.requests.get((id(session), request_id))) is not None:
            response.cancel()

    def leave(self, session: Session) -> None:
        """Remove the session of a client that disconnected."""
        if session in self.sessions:
            self.sessions.remove(session)

    async def respond(self, session: Session, message: Message) -> None:
        answer: Message = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            answer["result"] = await self.dispatch(
                session, message["method"], message.get("params") or {}, message["id"]
            )
        except Rejected as rejected:
            answer["error"] = rejected.error
        await session.send(answer, of=message["id"])

    async def dispatch(self, session: Session, method: str, params: Message, request_id: object) -> Message:
        match method:
            case "initialize":
                return self.initialize(session, params)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": self.tools()}
            case "tools/call":
                return await self.call(session, params, request_id)
            case "tasks/get":
                return await self.get(session, params)
            case "tasks/result":
                return await self.result(session, params, request_id)
            case "tasks/cancel" if "cancel" in self.capability():
                return await self.cancel(session, params)
            case "tasks/list" if "list" in self.capability():
                return self.list(session, params)
            case _:
                raise Rejected(NOT_FOUND, f"there is no {method}")

    # Initialization and tools

    def initialize(self, session: Session, params: Message) -> Message:
        session.capabilities = params["capabilities"]
        self.sessions.append(session)
        capabilities = {"tools": {}, "tasks": self.capability()}
        info = {"name": "fake", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}

    def capability(self) -> Message:
        return {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}

    def tools(self) -> list[Message]:
        return [self.tool(name, support) for name, support in SUPPORT.items()]

    def tool(self, name: str, support: str | None) -> Message:
        tool: Message = {"name": name, "inputSchema": {"type": "object"}}
        return tool if support is None else {**tool, "execution": {"taskSupport": support}}

    # Calls

    async def call(self, session: Session, params: Message, request_id: object) -> Message:
        name = params["name"]
        if name not in SUPPORT:
            raise Rejected(INVALID, f"there is no tool {name}")
        self.check_token(params.get("_meta", {}).get("progressToken"))
        if "task" in params:
            return await self.call_as_task(session, name, params)
        if SUPPORT[name] == "required":
            return self.refuse_plain(name)
        return await self.call_plainly(session, name, request_id)

    def refuse_plain(self, name: str) -> Message:
        raise Rejected(NOT_FOUND, f"{name} needs a task")

    async def call_plainly(self, session: Session, name: str, request_id: object) -> Message:
        del session, request_id
        return {"isError": True, "content": []} if name == "tool_error" else self.finished(name)

    def finished(self, name: str) -> Message:
        """Return the result of a tool that finishes at once."""
        if name == "protocol_error":
            raise Rejected(BROKEN, "it broke down")
        return text(f"{name} is done")

    def check_token(self, token: object) -> None:
        if token is not None and (isinstance(token, bool) or not isinstance(token, str | int | float)):
            raise Rejected(INVALID, "progressToken is a string or a number")

    async def call_as_task(self, session: Session, name: str, params: Message) -> Message:
        if SUPPORT[name] is None:
            return self.refuse_task(session, name)
        options = self.check_task(params["task"])
        task = Task(
            id=self.new_id(params),
            number=next(self.numbers),
            session=session,
            tool=name,
            ttl=self.choose_ttl(options.get("ttl")),
            token=params.get("_meta", {}).get("progressToken"),
        )
        self.tasks[task.id] = task
        task.work = self.spawn(self.run(task))
        return self.created(task)

    def refuse_task(self, session: Session, name: str) -> Message:
        del session
        raise Rejected(NOT_FOUND, f"{name} can't be a task")

    def check_task(self, options: object) -> Message:
        if not is_object(options):
            raise Rejected(INVALID, "task is an object")
        ttl = options.get("ttl", 0)
        if isinstance(ttl, bool) or not isinstance(ttl, int):
            return self.refuse_ttl()
        return options

    def refuse_ttl(self) -> Message:
        raise Rejected(INVALID, "ttl is an integer")

    def choose_ttl(self, options: int | None) -> int:
        return min(60_000 if options is None else options, MAX_TTL)

    def new_id(self, params: Message) -> str:
        del params
        return secrets.token_hex(16)

    def created(self, task: Task) -> Message:
        return {"task": self.view(task, "create"), "_meta": {IMMEDIATE: "it takes a while"}}

    def view(self, task: Task, where: str) -> Message:
        """Return a task as `create`, `get`, `list`, `cancel` or `status` reports it."""
        view: Message = {
            "taskId": task.id,
            "status": "working" if where == "create" else task.status,
            "createdAt": stamp(task.created),
            "lastUpdatedAt": stamp(task.updated),
            "ttl": task.ttl,
            "pollInterval": 50,
        }
        return view if task.status_message is None else {**view, "statusMessage": task.status_message}

    # Work

    async def run(self, task: Task) -> None:
        try:
            result = await self.work(task)
        except Rejected as rejected:
            await self.finish(task, {"error": rejected.error})
        else:
            await self.finish(task, {"result": result})

    async def work(self, task: Task) -> Message:
        match task.tool:
            case "slow":
                await asyncio.sleep(SLOW)
            case "reports_progress":
                for step in range(1, STEPS + 1):
                    await self.report(task, step)
                    await asyncio.sleep(STEP)
            case "asks":
                params: Message = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
                return await self.ask(task, "elicitation", "elicitation/create", params)
            case "samples":
                return await self.ask(task, "sampling", "sampling/createMessage", {"messages": [], "maxTokens": 1})
            case "tool_error":
                return {"isError": True, "content": [{"type": "text", "text": "it did not work"}]}
            case _:
                pass
        return self.finished(task.tool)

    async def report(self, task: Task, step: int) -> None:
        if task.token is None:
            return
        meta = {RELATED: {"taskId": task.id}}
        params = {"progressToken": task.token, "progress": step, "total": STEPS, "_meta": meta}
        await task.session.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    async def ask(self, task: Task, capability: str, method: str, params: Message) -> Message:
        if not self.may_ask(task, capability):
            return {"isError": True, "content": []}
        key = f"ask-{secrets.token_hex(4)}"
        meta = {RELATED: {"taskId": task.id}}
        task.question = {"jsonrpc": "2.0", "id": key, "method": method, "params": {**params, "_meta": meta}}
        future = self.waiting[key] = asyncio.get_running_loop().create_future()
        await self.change(task, self.status_while_waiting(task))
        answer = await future
        task.question = None
        await self.change(task, "working")
        return self.resume(task, answer)

    def may_ask(self, task: Task, capability: str) -> bool:
        return capability in task.session.capabilities

    def status_while_waiting(self, task: Task) -> str:
        del task
        return "input_required"

    def resume(self, task: Task, answer: Message) -> Message:
        del answer
        return self.finished(task.tool)

    async def finish(self, task: Task, outcome: Message) -> None:
        if task.has_ended:
            return
        task.outcome = outcome
        failed = "error" in outcome or outcome["result"].get("isError", False)
        await self.change(task, "failed" if failed else "completed", self.failure_message(task) if failed else None)

    def failure_message(self, task: Task) -> str | None:
        return f"{task.tool} did not work"

    async def change(self, task: Task, status: str, message: str | None = None) -> None:
        task.change(status, message)
        await self.notify(task)

    async def notify(self, task: Task) -> None:
        params = self.view(task, "status")
        await task.session.send({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": params})

    # Reading and cancelling tasks

    def find(self, session: Session, params: Message, method: str) -> Task:
        task_id = params.get("taskId")
        if not isinstance(task_id, str):
            return self.refuse_id(method)
        task = self.tasks.get(task_id)
        if task is None:
            return self.refuse_unknown(method)
        if not self.is_owner(session, task, method) or task.is_expired:
            return self.refuse_other(method)
        return task

    def is_owner(self, session: Session, task: Task, method: str) -> bool:
        del method
        return task.session.owner == session.owner

    def refuse_id(self, method: str) -> Task:
        del method
        raise Rejected(INVALID, "taskId is a string")

    def refuse_unknown(self, method: str) -> Task:
        return self.refuse_other(method)

    def refuse_other(self, method: str) -> Task:
        del method
        raise Rejected(INVALID, "task not found")

    async def get(self, session: Session, params: Message) -> Message:
        return self.view(self.find(session, params, "get"), "get")

    async def result(self, session: Session, params: Message, request_id: object) -> Message:
        task = self.find(session, params, "result")
        while not task.has_ended:
            changed = task.changed
            if task.question is not None and not task.was_asked:
                task.was_asked = True
                await self.put_question(session, task, request_id)
            await changed.wait()
        return self.final(task)

    async def put_question(self, session: Session, task: Task, request_id: object) -> None:
        if task.question is not None:
            await session.send(task.question, of=request_id)

    def final(self, task: Task) -> Message:
        if "error" in task.outcome:
            error = Rejected(0, "")
            error.error = task.outcome["error"]
            raise error
        return {**task.outcome["result"], "_meta": {RELATED: {"taskId": task.id}}}

    async def cancel(self, session: Session, params: Message) -> Message:
        task = self.find(session, params, "cancel")
        if task.has_ended:
            return self.refuse_cancel(task)
        await self.stop(task)
        return self.view(task, "cancel")

    def refuse_cancel(self, task: Task) -> Message:
        raise Rejected(INVALID, f"the task is {task.status} already")

    async def stop(self, task: Task) -> None:
        if task.work is not None:
            task.work.cancel()
        task.outcome = {"error": {"code": CANCELLED, "message": "the task was cancelled"}}
        await self.change(task, "cancelled", "cancelled by its caller")

    # Lists

    def list(self, session: Session, params: Message) -> Message:
        after = self.read_cursor(params.get("cursor"))
        listed = [task for task in self.tasks.values() if self.is_listed(session, task) and not task.is_expired]
        remaining = [task for task in listed if task.number > after]
        page: Message = {"tasks": [self.view(task, "list") for task in remaining[:PAGE]]}
        return {**page, "nextCursor": f"after-{remaining[PAGE - 1].number}"} if len(remaining) > PAGE else page

    def is_listed(self, session: Session, task: Task) -> bool:
        return task.session.owner == session.owner

    def read_cursor(self, cursor: str | None) -> int:
        if cursor is None:
            return 0
        prefix, _, number = cursor.partition("-")
        if prefix != "after" or not number.isdecimal():
            return self.refuse_cursor()
        return int(number)

    def refuse_cursor(self) -> int:
        raise Rejected(INVALID, "unknown cursor")
