"""Every text that a model reads about a task, from its call to the result, as stored in `transcripts`.

Set RAINCHECK_WRITE_TRANSCRIPTS=1 to rewrite the transcripts, and then review the diff.
"""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Any, Literal

import pytest
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from raincheck import RetryPolicy, TaskContext, ToolError
from raincheck.core.records import InputKind
from tests.support.server.caller_v2025 import V2025Caller
from tests.support.server.example import ExampleServer
from tests.support.server.fallback.hosts import task_id_of
from tests.support.server.fallback.transcript_writer import Script, compare, connected_script, server_with_clock
from tests.support.server.tools import Name

pytestmark = pytest.mark.anyio


class Report(BaseModel):
    year: int
    pages: int
    published: bool


class Publish(BaseModel):
    publish: bool
    where: Literal["web", "print"] = Field(default="web", description="where it is read")


class Steps:
    """Events that the tools of these conversations wait for."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()


def add_report(server: ExampleServer, steps: Steps) -> None:
    @server.tasks.tool
    async def build_report(year: int, task: TaskContext) -> Report:
        await task.progress(3, 12, "crunching")
        await server.tasks.engine.wait(task.id, until=lambda task: task.progress is not None)
        steps.started.set()
        await steps.go.wait()
        reply = await task.elicit("Publish it?", Publish)
        return Report(year=year, pages=12, published=reply.value is not None and reply.value.publish)


async def start_report(script: Script, steps: Steps, **arguments: Any) -> dict[str, Any]:
    """Call for a report, and return the answer that names its task."""
    steps.started.clear()
    return await script.call("build_report", arguments or {"year": 2026}, passes=45, after=steps.started.wait())


async def test_from_a_call_to_its_result() -> None:
    (server, clock), steps = server_with_clock(), Steps()
    add_report(server, steps)
    async with connected_script(server, clock) as script:
        answer = await start_report(script, steps)
        answer = await script.call_next(answer, passes=45)
        script.comment("The report is built, and asks a question.")
        steps.go.set()
        asked = await script.call_next(answer)
        answer = await script.call_next(asked, publish=True)
        await script.call("task_result", {"task_id": task_id_of(asked)})
        await script.call("task_status", {"task_id": task_id_of(asked)})
    compare("report", script.text)


async def test_a_lost_id() -> None:
    (server, clock), steps = server_with_clock(), Steps()
    add_report(server, steps)

    @server.tasks.tool
    async def send_mail(to: str) -> str:
        return f"sent to {to}"

    async with connected_script(server, clock) as script:
        script.comment("There are no tasks yet.")
        await script.call("task_status")
        await start_report(script, steps)
        await script.call("send_mail", {"to": "Ada"})
        clock.advance(300)
        await start_report(script, steps, year=2025)
        clock.advance(7_200)
        script.comment("The model has lost its task ids.")
        await script.call("task_status")
        found = await script.call("task_status", {"tool": "build_report"})
        await script.call("task_status", {"tool": "build_a_report"})
        await script.call("task_status", {"task_id": found["structuredContent"]["tasks"][0]["task_id"]})
        await script.call("task_wait", {"task_id": found["structuredContent"]["tasks"][0]["task_id"]}, passes=45)
    compare("lost", script.text)


async def test_a_cancelled_task() -> None:
    (server, clock), steps = server_with_clock(), Steps()
    add_report(server, steps)
    async with connected_script(server, clock) as script:
        task = {"task_id": task_id_of(await start_report(script, steps))}
        for tool in ("task_cancel", "task_wait", "task_result", "task_status", "task_cancel"):
            await script.call(tool, task)
        await script.call("task_answer", {**task, "answer": {"publish": True}})
        await script.call("task_status")
        script.comment("The operator cancels a task with a reason.")
        other = await start_report(script, steps, year=2025)
        await server.tasks.engine.cancel(task_id_of(other), reason="the office is closed")
        await script.call_next(other)
    compare("cancelled", script.text)


async def test_failures() -> None:
    (server, clock), steps = server_with_clock(), Steps()

    async def build_report(how: str, task: TaskContext) -> Report:
        await task.status("crunching")
        await server.tasks.engine.wait(task.id, until=lambda task: task.status_message is not None)
        steps.started.set()
        await steps.go.wait()
        match how:
            case "tool error":
                raise ToolError("There is no paper left.")
            case "protocol error":
                raise MCPError(-32042, "go there first")
            case _:
                raise OSError("secret")

    server.tasks.tool(retry=RetryPolicy(attempts=1))(build_report)
    async with connected_script(server, clock) as script:
        for how in ("tool error", "protocol error", "crash"):
            answer = await start_report(script, steps, how=how)
            steps.go.set()
            await server.tasks.engine.wait(task_id_of(answer))
            await script.call_next(answer)
            status = await script.call("task_status", {"task_id": task_id_of(answer)})
            await script.call_next(status)
            steps.go.clear()
        steps.go.set()
        script.comment("An immediate failure, and an invalid argument.")
        await script.call("build_report", {"how": "tool error"})
        await script.call("build_report", {"how": 7})
        await script.call("task_cancel", {"task_id": task_id_of(answer)})
    compare("failed", script.text)


async def test_wrong_answers() -> None:
    (server, clock), steps = server_with_clock(), Steps()
    add_report(server, steps)
    steps.go.set()
    async with connected_script(server, clock) as script:
        asked = await script.call("build_report", {"year": 2026})
        task = {"task_id": task_id_of(asked)}
        wrong: list[dict[str, Any]] = [
            {"answer": {"publish": "yes"}},
            {"answer": {"where": "web"}},
            {"answer": {"publish": True, "where": "wall"}},
            {"answer": "yes"},
            {"answer": ["yes"]},
            {"answer": {"publish": True}, "key": "publish"},
            {"answer": {"publish": True}, "action": "yes"},
            {},
        ]
        for given in wrong:
            await script.call("task_answer", {**task, **given})
        script.comment("The answer as text, which is accepted too.")
        await script.call("task_answer", {**task, "answer": '{"publish": true}'})
        script.comment("A second answer.")
        await script.call("task_answer", {**task, "answer": {"publish": False}})
    compare("wrong_answers", script.text)


async def test_unknown_ids() -> None:
    (server, clock), steps = server_with_clock(), Steps()
    add_report(server, steps)
    async with connected_script(server, clock) as script:
        for tool in ("task_wait", "task_status", "task_result", "task_cancel", "task_answer"):
            await script.call(tool, {"task_id": "report-7"})
        await script.call("task_wait")
        await script.call("task_wait", {"task_id": 7})
        await script.call("task_wait", {"task_id": "x" * 1_000})
    async with connected_script(server, clock, way="http") as stranger:
        stranger.comment("An anonymous caller over HTTP.")
        await stranger.call("task_wait", {"task_id": "report-7"})
        await stranger.call("task_status")
    compare("unknown_ids", f"{script.text}\n{stranger.text}")


async def test_a_question_to_the_model_itself() -> None:
    server, clock = server_with_clock()

    @server.tasks.tool
    async def summarize(task: TaskContext) -> str:
        messages = [{"role": "user", "content": {"type": "text", "text": "Summarize: it rained all day in Bergen."}}]
        reply: Any = await task.sample(messages, maxTokens=100, systemPrompt="Be short.")
        return f"In short: {reply['content']['text']}"

    async with connected_script(server, clock) as script:
        asked = await script.call("summarize")
        await script.call("task_answer", {"task_id": task_id_of(asked), "answer": {"summary": "Rain."}})
        await script.call_next(asked, text="Rain in Bergen.")
        asked = await script.call("summarize")
        await script.call("task_answer", {"task_id": task_id_of(asked), "action": "decline"})
    compare("sampling", script.text)


async def test_a_page_to_open() -> None:
    server, clock = server_with_clock()

    @server.tasks.tool
    async def pay(task: TaskContext) -> str:
        request = {"mode": "url", "message": "Pay 12 €.", "url": "https://pay.example/7?a=1&b=2", "elicitationId": "7"}
        reply: Any = await task.ask(InputKind.ELICITATION, request, name="pay")
        return f"payment: {reply['action']}"

    async with connected_script(server, clock) as script:
        asked = await script.call("pay")
        await script.call_next(asked)
        asked = await script.call("pay")
        await script.call("task_answer", {"task_id": task_id_of(asked), "action": "decline"})
    compare("url", script.text)


async def test_several_questions() -> None:
    server, clock = server_with_clock()
    ids: asyncio.Queue[str] = asyncio.Queue()

    @server.tasks.tool
    async def book(task: TaskContext) -> str:
        ids.put_nowait(task.id)
        asked = [task.elicit("Who travels?", Name, name="traveller"), task.elicit("Who pays?", Name, name="payer")]
        traveller, payer = await asyncio.gather(*asked)
        assert traveller.value is not None
        return f"{traveller.value.name} travels; who pays said: {payer.action}"

    async with connected_script(server, clock) as script:
        calling = asyncio.create_task(script.model.call("book"))
        task_id = await ids.get()
        await server.tasks.engine.wait(task_id, until=lambda task: task.open_inputs == 2)
        await clock.asleep(0.05)
        clock.advance(0.05)
        await calling
        asked = await script.call("task_wait", {"task_id": task_id})
        await script.call("task_answer", {"task_id": task_id, "answer": {"name": "Ada"}})
        rest = await script.call_next(asked, name="Ada")
        await script.call("task_answer", {"task_id": task_id_of(rest), "action": "decline"})
    compare("several_questions", script.text)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_declines(action: str) -> None:
    (server, clock), steps = server_with_clock(), Steps()
    add_report(server, steps)
    steps.go.set()
    async with connected_script(server, clock) as script:
        asked = await script.call("build_report", {"year": 2026})
        await script.call("task_answer", {"task_id": task_id_of(asked), "action": action})
    compare(f"{action}d" if action == "decline" else "no_answer", script.text)


async def test_a_user_whom_the_host_asks() -> None:
    (server, clock), steps = server_with_clock(), Steps()
    add_report(server, steps)
    steps.go.set()
    async with connected_script(server, clock, capabilities={"elicitation": {}}) as script:
        host = script.model.caller
        assert isinstance(host, V2025Caller)
        asked = asyncio.create_task(host.asked())
        answer = await script.call("build_report", {"year": 2026}, passes=45, after=asked)
        answer = await script.call_next(answer, passes=45)
        script.comment("The user has answered, in a window of the host.")
        await host.reply(await asked, {"action": "accept", "content": {"publish": True, "where": "web"}})
        await server.tasks.engine.wait(task_id_of(answer))
        await script.call_next(answer)
    compare("asked_by_the_host", script.text)


async def test_a_tool_that_is_known_to_be_slow() -> None:
    (server, clock), steps = server_with_clock(), Steps()

    @server.tasks.tool(expected=7_200, inline_for=7)
    async def train_model(task: TaskContext) -> str:
        await task.status("epoch 1 of 90")
        await server.tasks.engine.wait(task.id, until=lambda task: task.status_message is not None)
        steps.started.set()
        await steps.go.wait()
        return "trained"

    async with connected_script(server, clock) as script:
        calling = asyncio.create_task(script.model.call("train_model"))
        await steps.started.wait()
        await clock.asleep(7)
        clock.advance(7)
        answer = await calling
        script.comment("The call was answered with a task after 7 seconds.")
        await script.call("task_status", {"task_id": task_id_of(answer)})
        await script.call_next(answer, passes=45)
        clock.advance(7_200)
        await script.call_next(answer, passes=45)
    compare("long", script.text)


async def test_a_queued_and_a_paused_task() -> None:
    (server, clock), steps = server_with_clock(works=False), Steps()
    add_report(server, steps)
    async with connected_script(server, clock) as script:
        answer = await script.call("build_report", {"year": 2026}, passes=45)
        await server.tasks.engine.pause(task_id_of(answer))
        await script.call_next(answer, passes=45)
    compare("paused", script.text)


async def test_the_listed_fallback_tools() -> None:
    (server, clock), steps = server_with_clock(), Steps()
    add_report(server, steps)
    async with connected_script(server, clock) as script:
        for name, tool in script.tools.items():
            if name.startswith("task_"):
                script.comment(f"{name}: {tool['description']}")
                for argument, schema in tool["inputSchema"]["properties"].items():
                    needed = "" if argument in tool["inputSchema"].get("required", []) else ", optional"
                    script.comment(f"  {argument}{needed}: {schema['description']}")
    compare("tools", script.text)
