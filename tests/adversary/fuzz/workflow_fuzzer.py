"""Hostile arguments and answers for workflows with every kind of step."""

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.adversary.fuzz.checks import leaks
from tests.adversary.fuzz.findings import Findings
from tests.adversary.fuzz.secrets import PlantedSecrets
from tests.adversary.fuzz.values import fields_of, hostile_value
from tests.adversary.outcome import Outcome
from tests.adversary.served.caller import PoliteCaller, Refused, Unanswered
from tests.adversary.served.process import ServerProcess, started

SERVED = Path(__file__).parents[1] / "served"

WORKFLOWS = (
    "set_value", "run_argument", "run_arguments", "run_environment", "run_input", "run_folder", "http_query",
    "http_target", "http_header", "http_body", "http_json", "python_value", "python_error", "call_tool",
    "call_arguments", "ask_message", "sample_prompt", "child", "typed", "sleep_for", "each", "until_it_is",
    "filters", "compensated", "machine",
)  # fmt: skip

SAME = ("set_value", "python_value", "run_input", "run_argument")
"""Workflows whose result, or a part of it, is the value that they were given."""

BURST, AT_ONCE = 40, 8

REFUSALS = (-32602, -32010, -32000)
"""Codes of errors that a caller may get: wrong arguments, over a limit, an instance that is stuck."""

MAX_POLLS = 60
"""Polls after which a task is cancelled."""

MAX_POLLS_AFTER_CANCEL = 600

TERMINAL = ("completed", "failed", "cancelled")


@asynccontextmanager
async def serving_workflows(folder: Path, tools_port: int, env: Mapping[str, str]) -> AsyncGenerator[ServerProcess]:
    """Serve the workflows from a folder of their own, with a server beside them that echoes requests."""
    target = folder / "flows"
    target.mkdir()
    shutil.copy(SERVED / "flow_functions.py", target)
    async with _echo_server() as port:
        text = (SERVED / "flows.yaml").read_text(encoding="utf-8")
        text = text.replace("HTTP_PORT", str(port)).replace("TOOLS_PORT", str(tools_port))
        (target / "flows.yaml").write_text(text, encoding="utf-8")
        async with started(target, target / "flows.yaml", ["--http", "127.0.0.1:0"], env=env) as server:
            yield server


@asynccontextmanager
async def _echo_server() -> AsyncGenerator[int]:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().splitlines()
            size = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
            body = await reader.readexactly(size)
            first = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            writer.write(first + b"content-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@dataclass
class WorkflowFuzzer:
    """Calls workflows with hostile values, answers their questions, and follows each to its end."""

    port: int
    secrets: PlantedSecrets
    outcome: Outcome
    findings: Findings

    async def burst(self, seed: str) -> None:
        random = Random(seed)
        slots = asyncio.Semaphore(AT_ONCE)
        calls = [(random.choice(WORKFLOWS), _arguments(random)) for _ in range(BURST)]

        async def follow(number: int, name: str, arguments: dict[str, Any]) -> None:
            async with slots:
                await self._follow(f"{seed} {number}", name, arguments)

        async with asyncio.TaskGroup() as group:
            for number, (name, arguments) in enumerate(calls):
                group.create_task(follow(number, name, arguments))

    async def _follow(self, seed: str, name: str, arguments: dict[str, Any]) -> None:
        random = Random(seed)
        caller = PoliteCaller(self.port, f"Bearer fuzzer-{random.randrange(4)}")
        sent = json.dumps({"name": name, "arguments": arguments}).encode()
        self.outcome.counts["workflow calls"] += 1
        try:
            task = await caller.call(name, arguments)
            if "taskId" in task:
                task = await self._until_end(random, caller, str(task["taskId"]))
        except Refused as error:
            self.outcome.counts[f"workflow calls refused with {error.code}"] += 1
            expected = error.code in REFUSALS
            self.findings.add(seed, [] if expected else [f"a workflow was refused: {error}"], sent)
            return
        except Unanswered as error:
            self.findings.add(seed, [f"a call of {name} was not answered: {error}"], sent)
            return
        self.outcome.counts[f"workflows {task.get('status', 'answered at once')}"] += 1
        answer = json.dumps(task, ensure_ascii=False).encode(errors="replace")
        faults = leaks(answer, self.secrets.in_answers) + _changed_value(name, arguments, task)
        self.findings.add(f"{seed} {name}", faults, sent)

    async def _until_end(self, random: Random, caller: PoliteCaller, task_id: str) -> dict[str, Any]:
        """Poll a task and answer what it asks. Cancel it if it does not end, such as one that sleeps for a year."""
        task: dict[str, Any] = {}
        for number in range(MAX_POLLS + MAX_POLLS_AFTER_CANCEL):
            task = await caller.get(task_id)
            if task["status"] in TERMINAL:
                return task
            for key in task.get("inputRequests") or ():
                await self._answer(random, caller, task_id, str(key))
            if number == MAX_POLLS:
                self.outcome.counts["workflows cancelled by the fuzzer"] += 1
                await caller.request("tasks/cancel", {"taskId": task_id})
            await asyncio.sleep(min(0.02 * (number + 1), 0.5))
        raise Unanswered(f"it did not end, and was not cancelled either: {json.dumps(task)[:500]}")

    async def _answer(self, random: Random, caller: PoliteCaller, task_id: str, key: str) -> None:
        answer = random.choice((hostile_value(random), _answer(random), _answer(random)))
        try:
            await caller.request("tasks/update", {"taskId": task_id, "inputResponses": {key: answer}})
            self.outcome.counts["answers accepted"] += 1
        except Refused as error:
            self.outcome.counts[f"answers refused with {error.code}"] += 1
            if error.code != -32602:
                self.findings.add(task_id, [f"an answer was refused: {error}"], json.dumps(answer).encode())


def _arguments(random: Random) -> dict[str, Any]:
    arguments: dict[str, Any] = {"value": hostile_value(random)}
    if random.random() < 0.1:
        arguments = {
            "count": random.choice((1, hostile_value(random))),
            "word": random.choice(("a", hostile_value(random))),
        }
    return arguments | ({"more": 1} if random.random() < 0.03 else {})


def _answer(random: Random) -> dict[str, Any]:
    """Return an answer of about the right form, to a question or for a model."""
    return random.choice(
        (
            {"action": "accept", "content": {"ok": True, "note": "abc"}},
            {"action": "accept", "content": {"ok": hostile_value(random), "note": hostile_value(random)}},
            {"action": hostile_value(random)},
            {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"},
            {"role": "assistant", "content": hostile_value(random), "model": hostile_value(random)},
            {"action": "decline"},
        )
    )


def _changed_value(name: str, arguments: dict[str, Any], task: dict[str, Any]) -> list[str]:
    """Compare the result with the value that was given, where they must be the same."""
    result = task.get("result", task)
    if name not in SAME or task.get("status") not in (None, "completed") or result.get("isError"):
        return []
    content: Any = result.get("structuredContent")
    got = fields_of(content).get("result", content)
    value = arguments.get("value")
    if name == "run_input":
        if isinstance(value, str):
            return []  # passed as it is, and read as JSON
        got = fields_of(got).get("stdout", got)
    if name == "run_argument":
        value = str(value).rstrip("\n")
    same = got == value or content == value
    return [] if same else [f"{name} changed its value to {json.dumps(got)[:300]}"]
