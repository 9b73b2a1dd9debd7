"""Every text that a model reads of a task, from its call to the result, as it is written in `transcripts`.

With RAINCHECK_WRITE_TRANSCRIPTS=1 in the environment they are written anew: then read what has changed.
"""

# pyright: reportUnusedFunction=false

import asyncio
from typing import Any, Literal

import pytest
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from raincheck import RetryPolicy, TaskContext, ToolError
from raincheck.core.records import InputKind
from tests.support.server.caller_v2025 import G1Caller
from tests.support.server.example import Shop
from tests.support.server.fallback.hosts import handle_of
from tests.support.server.fallback.transcript_writer import Script, compare, scripted, timed
from tests.support.server.tools import Name

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


class Report(BaseModel):
    year: int
    pages: int
    published: bool


class Publish(BaseModel):
    publish: bool
    where: Literal["web", "print"] = Field(default="web", description="where it is read")


class Steps:
    """What the tools of these conversations wait for."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()


def add_report(shop: Shop, steps: Steps) -> None:
    @shop.tasks.tool
    async def build_report(year: int, task: TaskContext) -> Report:
        await task.progress(3, 12, "crunching")
        await shop.tasks.engine.wait(task.id, until=lambda task: task.progress is not None)
        steps.begun.set()
        await steps.go.wait()
        reply = await task.elicit("Publish it?", Publish)
        return Report(year=year, pages=12, published=reply.value is not None and reply.value.publish)


async def begun(script: Script, steps: Steps, **arguments: Any) -> dict[str, Any]:
    """A report that has been called for, and that is told of as a task."""
    steps.begun.clear()
    return await script.call("build_report", arguments or {"year": 2026}, passes=45, after=steps.begun.wait())


async def test_from_a_call_to_its_result() -> None:
    (shop, clock), steps = timed(), Steps()
    add_report(shop, steps)
    async with scripted(shop, clock) as script:
        answer = await begun(script, steps)
        answer = await script.go_on(answer, passes=45)
        script.say("The report is built, and has something to ask.")
        steps.go.set()
        asked = await script.go_on(answer)
        answer = await script.go_on(asked, publish=True)
        await script.call("task_result", {"task_id": handle_of(asked)})
        await script.call("task_status", {"task_id": handle_of(asked)})
    compare("report", script.text)


async def test_a_lost_id() -> None:
    (shop, clock), steps = timed(), Steps()
    add_report(shop, steps)

    @shop.tasks.tool
    async def send_mail(to: str) -> str:
        return f"sent to {to}"

    async with scripted(shop, clock) as script:
        script.say("Nothing is there yet.")
        await script.call("task_status")
        await begun(script, steps)
        await script.call("send_mail", {"to": "Ada"})
        clock.advance(300)
        await begun(script, steps, year=2025)
        clock.advance(7_200)
        script.say("The model has forgotten everything.")
        await script.call("task_status")
        found = await script.call("task_status", {"tool": "build_report"})
        await script.call("task_status", {"tool": "build_a_report"})
        await script.call("task_status", {"task_id": found["structuredContent"]["tasks"][0]["task_id"]})
        await script.call("task_wait", {"task_id": found["structuredContent"]["tasks"][0]["task_id"]}, passes=45)
    compare("lost", script.text)


async def test_what_is_cancelled() -> None:
    (shop, clock), steps = timed(), Steps()
    add_report(shop, steps)
    async with scripted(shop, clock) as script:
        task = {"task_id": handle_of(await begun(script, steps))}
        for tool in ("task_cancel", "task_wait", "task_result", "task_status", "task_cancel"):
            await script.call(tool, task)
        await script.call("task_answer", {**task, "answer": {"publish": True}})
        await script.call("task_status")
        script.say("Somebody else stops one, and says why.")
        other = await begun(script, steps, year=2025)
        await shop.tasks.engine.cancel(handle_of(other), reason="the office is closed")
        await script.go_on(other)
    compare("cancelled", script.text)


async def test_what_fails() -> None:
    (shop, clock), steps = timed(), Steps()

    async def build_report(how: str, task: TaskContext) -> Report:
        await task.status("crunching")
        await shop.tasks.engine.wait(task.id, until=lambda task: task.status_message is not None)
        steps.begun.set()
        await steps.go.wait()
        match how:
            case "tool error":
                raise ToolError("There is no paper left.")
            case "protocol error":
                raise MCPError(-32042, "go there first")
            case _:
                raise OSError("secret")

    shop.tasks.tool(retry=RetryPolicy(attempts=1))(build_report)
    async with scripted(shop, clock) as script:
        for how in ("tool error", "protocol error", "crash"):
            answer = await begun(script, steps, how=how)
            steps.go.set()
            await shop.tasks.engine.wait(handle_of(answer))
            await script.go_on(answer)
            status = await script.call("task_status", {"task_id": handle_of(answer)})
            await script.go_on(status)
            steps.go.clear()
        steps.go.set()
        script.say("At once, and with an argument that does not fit.")
        await script.call("build_report", {"how": "tool error"})
        await script.call("build_report", {"how": 7})
        await script.call("task_cancel", {"task_id": handle_of(answer)})
    compare("failed", script.text)


async def test_wrong_answers() -> None:
    (shop, clock), steps = timed(), Steps()
    add_report(shop, steps)
    steps.go.set()
    async with scripted(shop, clock) as script:
        asked = await script.call("build_report", {"year": 2026})
        task = {"task_id": handle_of(asked)}
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
        script.say("As text, which is as good.")
        await script.call("task_answer", {**task, "answer": '{"publish": true}'})
        script.say("Once more.")
        await script.call("task_answer", {**task, "answer": {"publish": False}})
    compare("wrong_answers", script.text)


async def test_unknown_ids() -> None:
    (shop, clock), steps = timed(), Steps()
    add_report(shop, steps)
    async with scripted(shop, clock) as script:
        for tool in ("task_wait", "task_status", "task_result", "task_cancel", "task_answer"):
            await script.call(tool, {"task_id": "report-7"})
        await script.call("task_wait")
        await script.call("task_wait", {"task_id": 7})
        await script.call("task_wait", {"task_id": "x" * 1_000})
    async with scripted(shop, clock, way="http") as stranger:
        stranger.say("Somebody over HTTP whom nobody knows.")
        await stranger.call("task_wait", {"task_id": "report-7"})
        await stranger.call("task_status")
    compare("unknown_ids", f"{script.text}\n{stranger.text}")


async def test_a_question_to_the_model_itself() -> None:
    shop, clock = timed()

    @shop.tasks.tool
    async def summarize(task: TaskContext) -> str:
        messages = [{"role": "user", "content": {"type": "text", "text": "Summarize: it rained all day in Bergen."}}]
        said: Any = await task.sample(messages, maxTokens=100, systemPrompt="Be short.")
        return f"In short: {said['content']['text']}"

    async with scripted(shop, clock) as script:
        asked = await script.call("summarize")
        await script.call("task_answer", {"task_id": handle_of(asked), "answer": {"summary": "Rain."}})
        await script.go_on(asked, text="Rain in Bergen.")
        asked = await script.call("summarize")
        await script.call("task_answer", {"task_id": handle_of(asked), "action": "decline"})
    compare("sampling", script.text)


async def test_a_page_to_open() -> None:
    shop, clock = timed()

    @shop.tasks.tool
    async def pay(task: TaskContext) -> str:
        request = {"mode": "url", "message": "Pay 12 €.", "url": "https://pay.example/7?a=1&b=2", "elicitationId": "7"}
        reply: Any = await task.ask(InputKind.ELICITATION, request, name="pay")
        return f"payment: {reply['action']}"

    async with scripted(shop, clock) as script:
        asked = await script.call("pay")
        await script.go_on(asked)
        asked = await script.call("pay")
        await script.call("task_answer", {"task_id": handle_of(asked), "action": "decline"})
    compare("url", script.text)


async def test_several_questions() -> None:
    shop, clock = timed()
    ids: asyncio.Queue[str] = asyncio.Queue()

    @shop.tasks.tool
    async def book(task: TaskContext) -> str:
        ids.put_nowait(task.id)
        asked = [task.elicit("Who travels?", Name, name="traveller"), task.elicit("Who pays?", Name, name="payer")]
        traveller, payer = await asyncio.gather(*asked)
        assert traveller.value is not None
        return f"{traveller.value.name} travels; who pays said: {payer.action}"

    async with scripted(shop, clock) as script:
        calling = asyncio.create_task(script.model.call("book"))
        task_id = await ids.get()
        await shop.tasks.engine.wait(task_id, until=lambda task: task.open_inputs == 2)
        await clock.asleep(0.05)
        clock.advance(0.05)
        await calling
        asked = await script.call("task_wait", {"task_id": task_id})
        await script.call("task_answer", {"task_id": task_id, "answer": {"name": "Ada"}})
        rest = await script.go_on(asked, name="Ada")
        await script.call("task_answer", {"task_id": handle_of(rest), "action": "decline"})
    compare("several_questions", script.text)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_says_no(action: str) -> None:
    (shop, clock), steps = timed(), Steps()
    add_report(shop, steps)
    steps.go.set()
    async with scripted(shop, clock) as script:
        asked = await script.call("build_report", {"year": 2026})
        await script.call("task_answer", {"task_id": handle_of(asked), "action": action})
    compare(f"{action}d" if action == "decline" else "no_answer", script.text)


async def test_a_user_whom_the_host_asks() -> None:
    (shop, clock), steps = timed(), Steps()
    add_report(shop, steps)
    steps.go.set()
    async with scripted(shop, clock, capabilities={"elicitation": {}}) as script:
        host = script.model.caller
        assert isinstance(host, G1Caller)
        asked = asyncio.create_task(host.asked())
        answer = await script.call("build_report", {"year": 2026}, passes=45, after=asked)
        answer = await script.go_on(answer, passes=45)
        script.say("The user has answered, in a window of the host.")
        await host.reply(await asked, {"action": "accept", "content": {"publish": True, "where": "web"}})
        await shop.tasks.engine.wait(handle_of(answer))
        await script.go_on(answer)
    compare("asked_by_the_host", script.text)


async def test_what_is_known_to_take_long() -> None:
    (shop, clock), steps = timed(), Steps()

    @shop.tasks.tool(expected=7_200, inline_for=7)
    async def train_model(task: TaskContext) -> str:
        await task.status("epoch 1 of 90")
        await shop.tasks.engine.wait(task.id, until=lambda task: task.status_message is not None)
        steps.begun.set()
        await steps.go.wait()
        return "trained"

    async with scripted(shop, clock) as script:
        calling = asyncio.create_task(script.model.call("train_model"))
        await steps.begun.wait()
        await clock.asleep(7)
        clock.advance(7)
        answer = await calling
        script.say("It was called, and told of after 7 seconds.")
        await script.call("task_status", {"task_id": handle_of(answer)})
        await script.go_on(answer, passes=45)
        clock.advance(7_200)
        await script.go_on(answer, passes=45)
    compare("long", script.text)


async def test_what_waits_for_its_turn_and_what_is_held_back() -> None:
    (shop, clock), steps = timed(works=False), Steps()
    add_report(shop, steps)
    async with scripted(shop, clock) as script:
        answer = await script.call("build_report", {"year": 2026}, passes=45)
        await shop.tasks.engine.pause(handle_of(answer))
        await script.go_on(answer, passes=45)
    compare("held_back", script.text)


async def test_how_the_five_are_listed() -> None:
    (shop, clock), steps = timed(), Steps()
    add_report(shop, steps)
    async with scripted(shop, clock) as script:
        for name, tool in script.tools.items():
            if name.startswith("task_"):
                script.say(f"{name}: {tool['description']}")
                for argument, schema in tool["inputSchema"]["properties"].items():
                    needed = "" if argument in tool["inputSchema"].get("required", []) else ", optional"
                    script.say(f"  {argument}{needed}: {schema['description']}")
    compare("tools", script.text)
