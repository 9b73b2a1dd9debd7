"""The programs of the docs do what the pages say, over real HTTP on this machine."""

import asyncio
import json
import re
import shlex
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from docs_src import bearer, call_reports, mounted, reports, serve_and_work, serve_workflows
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import ASGIApp

from raincheck.client import TaskCancelled, TaskClient, TaskRef
from tests.support.docs.pages import ROOT, text_of

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Disable the check: servers and callers share the loop, and read files at startup."""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAINCHECK_STORE", "tasks.db")


@asynccontextmanager
async def serving(app: ASGIApp, path: str = "/mcp") -> AsyncGenerator[str]:
    """Serve an application, and yield its URL."""
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="on"))
    background_task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}{path}"
    finally:
        server.should_exit = True
        await background_task


async def test_the_server_of_the_readme_answers_a_caller_without_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(reports.mcp.streamable_http_app()) as url:
        await call_reports.main(url)
    output = capsys.readouterr().out.strip()
    assert output == "{'total': 12156}"
    assert f"prints `{output}`" in text_of(ROOT / "README.md")


async def test_the_server_of_the_readme_returns_a_task_after_its_inline_window() -> None:
    async with (
        serving(reports.mcp.streamable_http_app()) as url,
        TaskClient(url) as client,
    ):
        quick = await client.call("build_report", {"year": 2026, "months": 1})
        assert quick.task_id is None
        handle = await client.call("build_report", {"year": 2026, "months": 60})
        state = await handle.poll()
        assert state is not None
        assert state.status == "working"
        assert (state.message or "").startswith("adding up month")
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.result()


def curls_of(page: Path) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


async def run_curl(command: str, url: str) -> dict[str, Any]:
    """Run a curl command of a page against a server at another URL, and return the JSON response."""
    words = shlex.split(command[command.index("curl ") :])
    pairs = list(pairwise(words))
    headers = dict(value.split(": ", 1) for option, value in pairs if option == "-H")
    (body,) = (value for option, value in pairs if option == "-d")
    async with httpx2.AsyncClient() as client:
        return (await client.post(url, headers=headers, content=body)).json()


async def test_the_raw_requests_of_the_docs_are_answered() -> None:
    call, get_it, _ = curls_of(ROOT / "docs/howto/call-tasks.md")
    call = call.replace('"months": 3', '"months": 60')
    async with serving(reports.mcp.streamable_http_app()) as url:
        created = (await run_curl(call, url))["result"]
        assert created["resultType"] == "task"
        shown = (await run_curl(get_it.replace("$TASK", created["taskId"]), url))["result"]
        assert (shown["taskId"], shown["status"]) == (created["taskId"], "working")
        async with TaskClient(url) as client:
            ref = TaskRef(server=url, task_id=created["taskId"], tool="build_report", tier="2026-07-28")
            await client.resume(ref).cancel()


async def test_a_token_decides_the_owner_of_a_task() -> None:
    async with serving(bearer.mcp.streamable_http_app()) as url:
        for user in ("ada", "bob"):
            async with (
                httpx2.AsyncClient(headers={"authorization": f"Bearer token-of-{user}"}) as http,
                Client(streamable_http_client(url, http_client=http)) as client,
            ):
                result = await client.call_tool("whose")
            assert result.structured_content == {"result": f'["token", "{bearer.ISSUER}", "{user}"]'}
        async with httpx2.AsyncClient() as stranger:
            assert (await stranger.post(url, json={})).status_code == 401


async def test_tasks_work_in_a_mounted_server() -> None:
    async with serving(mounted.app, "/api/mcp") as url, Client(url) as client:
        assert (await client.call_tool("greet", {"name": "Ada"})).structured_content == {"result": "Hello, Ada!"}


async def test_a_program_serves_a_file_of_workflows() -> None:
    async with serving(serve_workflows.app) as url, Client(url) as client:
        assert (await client.call_tool("greet", {"name": "Ada"})).structured_content == {"result": "Hello, Ada!"}


async def test_one_process_serves_and_another_works_until_a_signal() -> None:
    serves, _ = serve_and_work.build("split.db", works=False)
    async with Client(serves) as client:
        calling = asyncio.create_task(client.call_tool("greet", {"name": "Ada"}))
        done, _ = await asyncio.wait([calling], timeout=0.3)
        assert not done
        working = asyncio.create_task(serve_and_work.work("split.db"))
        assert (await calling).structured_content == {"result": "Hello, Ada!"}
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(working, 30)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


def bodies_of(script: str) -> list[str]:
    """Return the bodies that the curl commands of a script send, in order."""
    words = shlex.split(script, comments=True)
    return [word for word in words if word.startswith('{"jsonrpc"')]


async def test_the_raw_requests_of_the_older_protocol_in_the_docs_are_answered() -> None:
    *_, script = curls_of(ROOT / "docs/howto/call-tasks.md")
    hello, initialized, call, get_it, result = bodies_of(script)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    async with serving(reports.mcp.streamable_http_app()) as url, httpx2.AsyncClient(timeout=300) as client:

        async def ask(body: str) -> dict[str, Any]:
            answer = await client.post(url, headers=headers, content=body)
            answer.raise_for_status()
            headers.setdefault("Mcp-Session-Id", answer.headers["mcp-session-id"])
            events = [line.removeprefix("data:") for line in answer.text.splitlines() if line.startswith("data:")]
            return json.loads(events[-1])["result"] if events else {}

        assert "tasks" in (await ask(hello))["capabilities"]
        headers["MCP-Protocol-Version"] = "2025-11-25"
        await ask(initialized)
        task = (await ask(call.replace('"months": 3', '"months": 1')))["task"]
        assert task["ttl"] == 60_000
        assert (await ask(get_it.replace("$TASK", task["taskId"])))["taskId"] == task["taskId"]
        assert (await ask(result.replace("$TASK", task["taskId"])))["structuredContent"] == {"total": 2026}
