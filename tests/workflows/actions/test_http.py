"""Steps that call servers: over HTTP, tools of MCP servers, and models behind an endpoint."""

import json
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from raincheck.core.values import Json
from tests.support.workflows.canned_http import CannedHttpServer, serving
from tests.support.workflows.harness import WorkflowHarness

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncIterator[CannedHttpServer]:
    async with serving() as server:
        yield server


def flow(server: CannedHttpServer, step: str) -> str:
    step = step.replace("URL", f"http://127.0.0.1:{server.port}")
    return (
        f"allow: {{hosts: ['127.0.0.1:{server.port}'], env: [TOKEN]}}\n"
        f"workflows:\n  flow:\n    input: {{x: {{default: null}}}}\n    steps:\n      - {{id: a, {step}}}\n"
    )


async def test_a_json_response_is_decoded(workflow_harness: WorkflowHarness, server: CannedHttpServer) -> None:
    server.put("/items?q=a%20b", b'{"items": [1, 2]}', Content_Type="application/json")
    result = cast("Any", await workflow_harness.run(flow(server, "http: {url: 'URL/items?q={{ input.x }}'}"), x="a b"))
    assert (result["status"], result["body"]) == (200, {"items": [1, 2]})
    assert result["headers"]["content-type"] == "application/json"


async def test_other_responses_are_text(workflow_harness: WorkflowHarness, server: CannedHttpServer) -> None:
    server.put("/", "grüße".encode("latin-1"), Content_Type="text/plain; charset=latin-1")
    assert cast("Any", await workflow_harness.run(flow(server, "http: {url: URL/}")))["body"] == "grüße"


@pytest.mark.parametrize("charset", ["punycode", "idna", "base64", "zlib", "iso-8859-12", "nonsense"])
async def test_an_unknown_charset_is_read_as_utf_8(
    workflow_harness: WorkflowHarness, server: CannedHttpServer, charset: str
) -> None:
    server.put("/", b"a-" + "ü".encode() + b"\xff", Content_Type=f"text/plain; charset={charset}")
    assert cast("Any", await workflow_harness.run(flow(server, "http: {url: URL/}")))["body"] == "a-ü\ufffd"


@pytest.mark.parametrize("charset", ["UTF-16", "utf_8", "windows-1252", "cp1252", "ISO_8859-15", "iso8859-1"])
async def test_a_response_is_decoded_with_its_charset(
    workflow_harness: WorkflowHarness, server: CannedHttpServer, charset: str
) -> None:
    server.put("/", "grüße".encode(charset), Content_Type=f"text/plain; charset={charset}")
    assert cast("Any", await workflow_harness.run(flow(server, "http: {url: URL/}")))["body"] == "grüße"


@pytest.mark.parametrize("allowed", ["[::1]:PORT", "[0:0::1]", "::1", "[::1]"])
async def test_an_address_of_ipv6_can_be_allowed(workflow_harness: WorkflowHarness, allowed: str) -> None:
    async with serving("::1") as server:
        server.put("/", b"here")
        text = flow(server, f"http: {{url: 'http://[::1]:{server.port}/'}}")
        text = text.replace(f"127.0.0.1:{server.port}", allowed.replace("PORT", str(server.port)))
        assert cast("Any", await workflow_harness.run(text))["body"] == "here"


async def test_a_body_of_json_is_sent_with_its_headers(
    workflow_harness: WorkflowHarness, server: CannedHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    server.put("/", b"")
    headers = "headers: {Authorization: 'Bearer {{ env.TOKEN }}'}"
    step = f"http: {{method: POST, url: URL/, {headers}, json: {{n: '{{{{ input.x }}}}'}}}}"
    await workflow_harness.run(flow(server, step), x=5)
    (asked,) = server.requests
    assert asked.startswith("POST / ")
    assert "authorization: Bearer s3cret" in asked
    assert "content-type: application/json" in asked
    assert asked.endswith('{"n":5}')


@pytest.mark.parametrize(("step", "status"), [("", "500 Oh"), ("expect: [201]", "200 OK"), ("", "304 No")])
async def test_a_status_that_is_not_expected_is_an_error(
    workflow_harness: WorkflowHarness, server: CannedHttpServer, step: str, status: str
) -> None:
    server.put("/", b"", status=status)
    message = await workflow_harness.failure(flow(server, f"http: {{url: URL/, {step}}}"))
    assert (
        f"failed (http) at `GET http://127.0.0.1:{server.port}/`: the server answered with status {status[:3]}"
        in message
    )


async def test_a_server_that_does_not_answer_in_time_is_a_timeout(
    workflow_harness: WorkflowHarness, server: CannedHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raincheck.workflows.actions.http.IDLE_TIMEOUT", 0.2)
    server.responses["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"
    server.keeps_open = True
    assert "did not answer in time" in await workflow_harness.failure(flow(server, "http: {url: URL/}"))
    server.close_event.set()


async def test_redirects_to_allowed_hosts_are_followed(
    workflow_harness: WorkflowHarness, server: CannedHttpServer
) -> None:
    server.put("/old", b"", status="302 Found", Location="/new")
    server.put("/new", b"here")
    assert cast("Any", await workflow_harness.run(flow(server, "http: {url: URL/old}")))["body"] == "here"


async def test_redirects_to_other_hosts_are_refused(
    workflow_harness: WorkflowHarness, server: CannedHttpServer
) -> None:
    server.put("/", b"", status="302 Found", Location="http://localhost:1/")
    message = await workflow_harness.failure(flow(server, "http: {url: URL/}"))
    assert "failed (refused)" in message
    assert "host 'localhost:1' is not allowed" in message


async def test_too_many_redirects_are_an_error(workflow_harness: WorkflowHarness, server: CannedHttpServer) -> None:
    server.put("/", b"", status="302 Found", Location="/")
    assert "redirects more than 5 times" in await workflow_harness.failure(flow(server, "http: {url: URL/}"))
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    "url", ["http://evil.example/", "file:///etc/passwd", "http://127.0.0.1:1/", "//x", "http://[", "http://a\nb/"]
)
async def test_no_value_can_change_the_host(
    workflow_harness: WorkflowHarness, server: CannedHttpServer, url: str
) -> None:
    message = await workflow_harness.failure(flow(server, "http: {url: '{{ input.x }}'}"), x=url)
    assert "failed (refused)" in message or "failed (http)" in message
    assert not server.requests


async def test_a_host_that_resembles_an_allowed_one_is_refused(
    workflow_harness: WorkflowHarness, server: CannedHttpServer
) -> None:
    url = f"http://127.0.0.1:{server.port}@evil.example/"
    assert "host 'evil.example' is not allowed" in await workflow_harness.failure(
        flow(server, "http: {url: '{{ input.x }}'}"), x=url
    )


async def test_no_more_of_a_response_is_read_than_max_body(
    workflow_harness: WorkflowHarness, server: CannedHttpServer
) -> None:
    server.put("/", b"x" * 5_000_000)
    assert "failed (too-large)" in await workflow_harness.failure(flow(server, "http: {url: URL/, max_body: 1MB}"))


async def test_an_unreachable_server_is_an_error(workflow_harness: WorkflowHarness, server: CannedHttpServer) -> None:
    text = flow(server, "http: {url: 'URL/'}").replace(str(server.port), "1")
    assert (
        "127.0.0.1:1 can't be reached: the host does not exist, or no server listens there"
        in await workflow_harness.failure(text)
    )


TOOLS = """
from mcp.server.mcpserver import MCPServer

mcp = MCPServer("tools")


@mcp.tool()
def add(a: int, b: int) -> int:
    return a + b


@mcp.tool()
def refuse() -> str:
    raise ValueError("not today")


mcp.run()
"""


async def test_a_tool_of_another_server_is_called(workflow_harness: WorkflowHarness) -> None:
    (workflow_harness.folder / "server.py").write_text(TOOLS)
    text = f"""
    servers: {{tools: {{command: ['{sys.executable}', server.py]}}}}
    workflows:
      flow:
        input: {{n: {{type: integer}}}}
        steps:
          - {{id: sum, call: {{server: tools, tool: add, arguments: {{a: "{{{{ input.n }}}}", b: 2}}}}}}
          - {{id: bad, on_error: continue, call: {{server: tools, tool: refuse}}}}
        output: ["{{{{ steps.sum.result.result }}}}", "{{{{ steps.bad.error }}}}"]
    """
    total, error = cast("Any", await workflow_harness.run(text, n=40))
    assert total == 42
    assert error["kind"] == "call"
    assert "refuse" in error["message"]


async def test_a_server_that_does_not_start_is_an_error(workflow_harness: WorkflowHarness) -> None:
    text = f"""
    servers: {{tools: {{command: ['{sys.executable}', gone.py]}}}}
    workflows: {{flow: {{steps: [{{id: a, call: {{server: tools, tool: add}}}}]}}}}
    """
    assert "failed (call) at `call add of tools`" in await workflow_harness.failure(text)


async def test_headers_are_sent_to_a_server_with_a_url(
    workflow_harness: WorkflowHarness, server: CannedHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    server.put("/mcp", b"", status="403 Forbidden")
    message = await workflow_harness.failure(f"""
    allow: {{env: [TOKEN]}}
    servers:
      s: {{url: 'http://127.0.0.1:{server.port}/mcp', headers: {{Authorization: "Bearer {{{{ env.TOKEN }}}}"}}}}
    workflows: {{flow: {{steps: [{{id: a, call: {{server: s, tool: t}}}}]}}}}
    """)
    assert "failed (call) at `call t of s`" in message
    assert server.requests, message
    assert "authorization: bearer s3cret" in server.requests[0].lower()


async def test_a_header_value_with_a_line_break_is_refused(
    workflow_harness: WorkflowHarness, server: CannedHttpServer
) -> None:
    step = "http: {url: URL/, headers: {X-It: '{{ input.x }}'}}"
    refused: list[Json] = ["a\r\nEvil: yes", ["a"], None]
    for value in refused:
        assert "failed" in await workflow_harness.failure(flow(server, step), x=value)
    assert not server.requests


async def test_a_body_that_does_not_match_its_content_type_is_an_error(
    workflow_harness: WorkflowHarness, server: CannedHttpServer
) -> None:
    server.put("/", b"{", Content_Type="application/json")
    assert "neither text nor JSON" in await workflow_harness.failure(flow(server, "http: {url: URL/}"))


async def test_the_operators_endpoint_is_sampled_instead_of_the_caller(
    workflow_harness: WorkflowHarness, server: CannedHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAINCHECK_SAMPLING_URL", f"http://127.0.0.1:{server.port}/v1/")
    monkeypatch.setenv("RAINCHECK_SAMPLING_KEY", "k")
    monkeypatch.setenv("RAINCHECK_SAMPLING_MODEL", "small")
    answer = {"model": "small-1", "choices": [{"message": {"role": "assistant", "content": "four"}}]}
    server.put("/v1/chat/completions", json.dumps(answer).encode())
    step = "sample: {prompt: 'two and {{ input.x }}?', system: Be brief., max_tokens: 5}"
    assert await workflow_harness.run(flow(server, step), x="two") == {"text": "four", "model": "small-1"}
    (asked,) = server.requests
    assert "authorization: Bearer k" in asked
    assert json.loads(asked.partition("\r\n\r\n")[2]) == {
        "model": "small",
        "max_tokens": 5,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "two and two?"}],
    }


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"choices": []}', b'{"choices": [{"message": null}]}', b"{"])
async def test_an_endpoint_that_answers_nonsense_is_an_error(
    workflow_harness: WorkflowHarness, server: CannedHttpServer, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setenv("RAINCHECK_SAMPLING_URL", f"http://127.0.0.1:{server.port}/v1")
    server.put("/v1/chat/completions", answer)
    message = await workflow_harness.failure(flow(server, "sample: {prompt: hello}"))
    assert "something other than a completion" in message
