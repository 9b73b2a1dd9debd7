"""Trace which of our modules a call crosses: `python -m scripts.call_paths [PATH ...] [--modules | --functions]`.

Each path runs in a new process, on SQLite, under `sys.setprofile`. A module counts if one of its functions runs during
the path. In the paths of a server, the modules of the client in the same process do not count.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp_types import ElicitResult
from pydantic import BaseModel
from scripts.call_tracer import Call, Tracer, save

from raincheck import Engine, Settings, TaskContext, Tasks, Toolbox, open_store
from raincheck.client import TaskClient
from raincheck.clock import SystemClock
from raincheck.stores import Scope, TaskQuery
from raincheck.workflows import WorkflowTasks

SERVER = """
from mcp.server.mcpserver import MCPServer
from raincheck import TaskContext, Tasks

mcp = MCPServer("reports")
tasks = Tasks(mcp, "tasks.db")

@tasks.tool(inline_for=0)
async def report(year: int, task: TaskContext) -> dict[str, int]:
    await task.progress(1, 2, "adding up")
    return {"total": year}
"""

PIPELINE = """
raincheck: 1
workflows:
  hello:
    description: Say hello.
    input:
      name: {type: string}
    steps:
      - id: greet
        run:
          argv: [echo, "{{ input.name }}"]
"""


@asynccontextmanager
async def _connected(
    body: Callable[..., Any],
    **options: Any,  # noqa: ANN401 - options of TaskClient
) -> AsyncGenerator[tuple[TaskClient, Tasks]]:
    """Connect a client to a server whose tool has been called once: what happens only then does not count."""
    # Nothing that runs at intervals counts either, however long a call takes on a busy machine.
    settings = replace(Tasks.DEFAULTS, lease=3_600.0, poll_interval=600.0, park_after=600.0)
    tasks = Tasks(MCPServer("reports"), "tasks.db", settings=settings)
    tasks.tool(name="report", inline_for=0)(body)
    async with TaskClient(tasks.server, name="traced", **options) as client:
        await client.call_tool("report", {"year": 1})
        yield client, tasks


def trace_v2026_call(tracer: Tracer) -> None:
    async def run() -> None:
        polled = asyncio.Event()

        async def load(year: int) -> int:
            if tracer.is_on:
                await polled.wait()
            return year

        async def body(year: int, task: TaskContext) -> int:
            return await task.step("load", load, year)

        async with _connected(body) as (client, _):
            tracer.is_on = True
            handle = await client.call("report", {"year": 2026})
            async for _update in handle:
                polled.set()
            await handle.result()
            tracer.is_on = False

    asyncio.run(run())


class Confirm(BaseModel):
    """The form of the question."""

    ok: bool


def trace_v2025_call_with_question(tracer: Tracer) -> None:
    async def body(year: int, task: TaskContext) -> int:
        reply = await task.elicit("Publish it?", Confirm)
        return year * reply.ok

    async def elicit(*_: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"ok": True})

    async def run() -> None:
        async with _connected(body, mode="legacy", elicitation_callback=elicit) as (client, tasks):
            tracer.is_on = True
            handle = await client.call("report", {"year": 2026})
            await tasks.engine.wait(str(handle.task_id), until=lambda task: task.open_inputs > 0)
            await handle.result()
            tracer.is_on = False

    asyncio.run(run())


def trace_crash_and_recovery(tracer: Tracer) -> None:
    toolbox = Toolbox()
    settings = Settings(lease=1.0, poll_interval=0.5)

    async def load(year: int) -> list[int]:
        return [year]

    async def build(year: int, task: TaskContext) -> list[int]:
        rows = await task.step("load", load, year)
        if task.attempt == 1:
            os._exit(9)
        return rows

    toolbox.tool(build)

    async def crash() -> None:
        async with open_store("tasks.db") as store, Engine(store, toolbox, settings=settings) as engine:
            await engine.submit("build", {"year": 2026})
            await asyncio.Event().wait()

    async def recover() -> None:
        async with open_store("tasks.db") as store:
            (task,) = (await store.list_tasks(TaskQuery(Scope.everything()), now=SystemClock().now(), limit=1)).tasks
            tracer.is_on = True
            async with Engine(store, toolbox, settings=settings) as engine:
                await engine.result(task.id)
                tracer.is_on = False

    if os.fork() == 0:
        asyncio.run(crash())
    os.wait()
    asyncio.run(recover())


def trace_workflow_step(tracer: Tracer) -> None:
    from raincheck.client import TaskClient

    Path("hello.yaml").write_text(PIPELINE, encoding="utf-8")

    async def run() -> None:
        tracer.is_on = True
        tasks = WorkflowTasks(Path("hello.yaml"))
        tracer.is_on = False
        tasks.configure(store="tasks.db")
        async with TaskClient(tasks.server, name="traced") as client:
            tracer.is_on = True
            await client.call_tool("hello", {"name": "bob"})
            tracer.is_on = False

    asyncio.run(run())


@dataclass(frozen=True, slots=True)
class CallPath:
    """A path through the code, and the modules that it may cross."""

    run: Callable[[Tracer], None] | None
    """Runs the path; None for a call of the program `raincheck`."""
    max_modules: int
    skipped: tuple[str, ...] = ("client/", "cli/")


PATHS = {
    "v2026-call": CallPath(trace_v2026_call, 50),
    "v2025-call-with-question": CallPath(trace_v2025_call_with_question, 60),
    "crash-and-recovery": CallPath(trace_crash_and_recovery, 40),
    "raincheck-call": CallPath(None, 32, skipped=()),
    "workflow-step": CallPath(trace_workflow_step, 90),
}

MAX_STEP_CALLS = 15
"""Calls that `task.step` may make before the rules decide what the store is to record."""


def step_calls(calls: Sequence[Call]) -> list[Call]:
    """Return the calls that the first `task.step` makes before the rules decide what the store is to record."""
    step = next(call for call in calls if call.function == "TaskContext.step")
    calls = [call for call in calls if call.task == step.task]
    after = calls[calls.index(step) + 1 :]
    return list(takewhile(lambda call: call.function != "decide", after))


def trace(name: str) -> list[Call]:
    """Trace a path in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "XDG_STATE_HOME": folder}
        command = [sys.executable, "-m", "scripts.call_paths", name, "--json", "calls.json"]
        if PATHS[name].run is None:
            Path(folder, "server.py").write_text(SERVER, encoding="utf-8")
            server = f"{Path(sys.executable).with_name('raincheck')} serve server.py"
            command = [sys.executable, "-m", "scripts.call_tracer", "calls.json", "call", server, "report", "year=2026"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)  # noqa: S603 - this script
        if done.returncode:
            raise RuntimeError(done.stderr)
        found: list[tuple[str, str, int]] = json.loads(Path(folder, "calls.json").read_text(encoding="utf-8"))
    return [Call(*call) for call in found if not call[0].startswith(PATHS[name].skipped or "\0")]


def modules_of(calls: Sequence[Call]) -> list[str]:
    """Return the modules in the order in which they are first called."""
    return list(dict.fromkeys(call.module for call in calls))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.call_paths")
    parser.add_argument("paths", nargs="*", metavar="PATH", help=", ".join(PATHS))
    parser.add_argument("--modules", action="store_true", help="print the modules of each path")
    parser.add_argument("--functions", action="store_true", help="print the functions of each path, too")
    parser.add_argument("--json", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.json and (run := PATHS[options.paths[0]].run):
        tracer = Tracer()
        run(tracer)
        save(tracer.calls, Path(options.json))
        return
    for name in options.paths or PATHS:
        calls = trace(name)
        modules = modules_of(calls)
        functions = list(dict.fromkeys(calls))
        print(f"{name}: {len(modules)} modules (at most {PATHS[name].max_modules}), {len(functions)} functions")
        if options.modules and not options.functions:
            print("".join(f"    {module}\n" for module in modules), end="")
        if options.functions:
            print("".join(f"    {call.module}: {call.function}\n" for call in functions), end="")
        if name == "v2026-call":
            before_store = step_calls(calls)
            print(f"task.step: {len(before_store)} calls before the rules decide (at most {MAX_STEP_CALLS})")
            if options.functions:
                print("".join(f"    {call.module}: {call.function}\n" for call in before_store), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
