"""A server with tools of every kind, whose bodies write down everything that they do."""

import asyncio
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from raincheck import OnInterrupt, Retention, RetryPolicy, SyncTaskContext, TaskContext, Tasks
from raincheck.core.policies import Quota
from raincheck.workflows import load_workflows

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # `raincheck serve` may be given this file from any folder

from diary import pause, write_line, write_surely  # noqa: E402  # pyright: ignore[reportImplicitRelativeImport]

STUBBORN = RetryPolicy(
    attempts=1_000, first_wait=timedelta(milliseconds=50), max_wait=timedelta(milliseconds=400), jitter=0.5
)
"""A disk that is full, or a process that dies, may fail any number of attempts, and must not fail the task."""


class Answer(BaseModel):
    """The answer to a question."""

    v: int


mcp = MCPServer("chaos", log_level="WARNING")
tasks = Tasks(
    mcp,
    settings=replace(
        Tasks.DEFAULTS,
        lease=2.0,
        park_after=0.2,
        grace=0.3,
        poll_interval=1.0,
        prune_interval=1.0,
        concurrency=16,
        quota=Quota(live=100_000),
    ),
)


async def work(task_id: str, attempt: int, step: str, seconds: float) -> str:
    write_line(task_id, attempt, "run", step)
    await asyncio.sleep(seconds)
    write_line(task_id, attempt, "ran", step)
    return step


async def do(task: TaskContext, step: str, seconds: float = 0.02) -> str:
    """Run a step, and write down when it started, ended, and was known to be recorded."""

    async def run() -> str:
        return await work(task.id, task.attempt, step, seconds)

    result: str = await task.step(step, run)
    write_line(task.id, task.attempt, "after", step)
    return result


@tasks.tool(inline_for=0, retry=STUBBORN)
async def steps(n: int, d: float, task: TaskContext) -> list[str]:
    """Run some steps, one after the other."""
    write_line(task.id, task.attempt, "body")
    results: list[str] = []
    for number in range(n):
        results.append(await do(task, f"s{number}", d))
        await task.progress(number, n, f"at {number}")
    return results


@tasks.tool(inline_for=0, retry=STUBBORN)
async def ask(key: str, n: int, task: TaskContext) -> list[int]:
    """Ask some questions, with a step after each."""
    write_line(task.id, task.attempt, "body")
    answers: list[int] = []
    for number in range(n):
        reply = await task.elicit(f"q{number} of {key}?", Answer, name=f"q{number}")
        write_line(task.id, task.attempt, "answered", f"q{number} of {key}?")
        answers.append(reply.value.v if reply.value is not None else -1)
        await do(task, f"s{number}")
    return answers


@tasks.tool(inline_for=0, retry=STUBBORN)
async def leaf(x: int, d: float, task: TaskContext) -> int:
    """Double a number."""
    write_line(task.id, task.attempt, "body")
    await do(task, "s0", d)
    return x * 2


@tasks.tool(inline_for=0, retry=STUBBORN)
async def family(n: int, d: float, task: TaskContext) -> int:
    """Add what some children return."""
    write_line(task.id, task.attempt, "body")
    await do(task, "s0")
    children = [await task.spawn("leaf", {"x": number, "d": d}, name=f"child{number}") for number in range(n)]
    return sum([int(str(await child.result())) for child in children])


@tasks.tool(inline_for=0, retry=STUBBORN)
async def chain(x: int, task: TaskContext) -> str:
    """Start another task with the end of this one, and return its id."""
    write_line(task.id, task.attempt, "body")
    await do(task, "s0")
    return await task.then("echo", {"x": x})


@tasks.tool(inline_for=0, retry=STUBBORN)
async def echo(x: int, result: str, task: TaskContext) -> int:
    """Return a number. The successor of `chain`."""
    del result
    write_line(task.id, task.attempt, "body")
    await do(task, "s0")
    return x


@tasks.tool(inline_for=0, retry=STUBBORN)
async def nap(seconds: float, task: TaskContext) -> str:
    """Sleep between two steps."""
    write_line(task.id, task.attempt, "body")
    await do(task, "s0")
    await task.sleep(seconds)
    return await do(task, "s1")


@tasks.tool(inline_for=0, retry=STUBBORN)
async def flaky(failures: int, task: TaskContext) -> int:
    """Fail some times, then succeed."""
    write_line(task.id, task.attempt, "body")
    failed = int(str(task.variables.get("failed", 0)))
    if failed < failures:
        await task.variables.set("failed", failed + 1)
        raise ConnectionError("try again")
    await do(task, "s0")
    return failed


@tasks.tool(inline_for=0, retry=STUBBORN)
def threaded(n: int, task: SyncTaskContext) -> list[str]:
    """Run some steps in a thread."""
    write_surely(task.id, task.attempt, "body")

    def run(step: str) -> str:
        write_surely(task.id, task.attempt, "run", step)
        pause(0.03)
        return step

    results: list[str] = []
    for number in range(n):
        results.append(task.step(f"s{number}", run, f"s{number}"))
        write_surely(task.id, task.attempt, "after", f"s{number}")
    return results


@tasks.tool(inline_for=0, retry=STUBBORN)
async def endless(n: int, task: TaskContext) -> int:
    """Run many short steps: for callers that cancel."""
    write_line(task.id, task.attempt, "body")
    for number in range(n):
        await do(task, f"s{number}", 0.05)
    return n


@tasks.tool(inline_for=0, retry=STUBBORN)
def spin(n: int, task: SyncTaskContext) -> int:
    """Tick in a thread until it is cancelled, or long enough."""
    write_surely(task.id, task.attempt, "body")
    for number in range(n):
        if task.cancelled:
            break
        write_surely(task.id, task.attempt, "tick", str(number))
        pause(0.05)
    return n


@tasks.tool(inline_for=0, retry=RetryPolicy(attempts=1, on_interrupt=OnInterrupt.FAIL), retry_on=())
async def pay(d: float, task: TaskContext) -> str:
    """Do what must not be done twice."""
    write_line(task.id, task.attempt, "charge")
    await asyncio.sleep(d)
    return "paid"


@tasks.tool(inline_for=0, retry_on=(), annotations=ToolAnnotations(destructive_hint=True))
async def wipe(d: float, task: TaskContext) -> str:
    """Destroy something, as the annotations declare."""
    write_line(task.id, task.attempt, "charge")
    await asyncio.sleep(d)
    return "wiped"


@tasks.tool(inline_for=0, retry=STUBBORN, idempotency="bill")
async def bill_once(bill: str, task: TaskContext) -> str:
    """Pay a bill, once for all calls with the same one."""
    write_line(task.id, task.attempt, "body")
    await do(task, "s0", 0.05)
    return bill


@tasks.tool(inline_for=0, retry=STUBBORN, retention=Retention(keep=timedelta(seconds=3)))
async def fleeting(d: float, task: TaskContext) -> str:
    """End, and be forgotten soon."""
    write_line(task.id, task.attempt, "body")
    return await do(task, "s0", d)


for workflow in load_workflows(HERE / "flows.yaml").definitions.values():
    tasks.add(workflow.tool(), input_schema=workflow.input_schema, description=workflow.description)
