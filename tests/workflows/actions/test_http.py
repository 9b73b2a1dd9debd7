"""Steps that ask servers: over HTTP, tools of MCP servers, and models behind an endpoint."""

import json
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from raincheck.core.payload import Json
from tests.support.workflows.canned_http import Canned, serving
from tests.support.workflows.harness import Workshop

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


@pytest.fixture
async def server() -> AsyncIterator[Canned]:
    async with serving() as server:
        yield server


def flow(server: Canned, step: str) -> str:
    step = step.replace("URL", f"http://127.0.0.1:{server.port}")
    return (
        f"allow: {{hosts: ['127.0.0.1:{server.port}'], env: [TOKEN]}}\n"
        f"workflows:\n  flow:\n    input: {{x: {{default: null}}}}\n    steps:\n      - {{id: a, {step}}}\n"
    )


async def test_json_that_is_answered_is_json(workshop: Workshop, server: Canned) -> None:
    server.put("/items?q=a%20b", b'{"items": [1, 2]}', Content_Type="application/json")
    said = cast("Any", await workshop.run(flow(server, "http: {url: 'URL/items?q={{ input.x }}'}"), x="a b"))
    assert (said["status"], said["body"]) == (200, {"items": [1, 2]})
    assert said["headers"]["content-type"] == "application/json"


async def test_other_answers_are_text(workshop: Workshop, server: Canned) -> None:
    server.put("/", "grüße".encode("latin-1"), Content_Type="text/plain; charset=latin-1")
    assert cast("Any", await workshop.run(flow(server, "http: {url: URL/}")))["body"] == "grüße"


@pytest.mark.parametrize("charset", ["punycode", "idna", "base64", "zlib", "iso-8859-12", "nonsense"])
async def test_a_charset_that_is_none_is_read_as_utf_8(workshop: Workshop, server: Canned, charset: str) -> None:
    server.put("/", b"a-" + "ü".encode() + b"\xff", Content_Type=f"text/plain; charset={charset}")
    assert cast("Any", await workshop.run(flow(server, "http: {url: URL/}")))["body"] == "a-ü\ufffd"


@pytest.mark.parametrize("charset", ["UTF-16", "utf_8", "windows-1252", "cp1252", "ISO_8859-15", "iso8859-1"])
async def test_an_answer_is_read_in_its_charset(workshop: Workshop, server: Canned, charset: str) -> None:
    server.put("/", "grüße".encode(charset), Content_Type=f"text/plain; charset={charset}")
    assert cast("Any", await workshop.run(flow(server, "http: {url: URL/}")))["body"] == "grüße"


@pytest.mark.parametrize("allowed", ["[::1]:PORT", "[0:0::1]", "::1", "[::1]"])
async def test_an_address_of_ipv6_can_be_allowed(workshop: Workshop, allowed: str) -> None:
    async with serving("::1") as server:
        server.put("/", b"here")
        text = flow(server, f"http: {{url: 'http://[::1]:{server.port}/'}}")
        text = text.replace(f"127.0.0.1:{server.port}", allowed.replace("PORT", str(server.port)))
        assert cast("Any", await workshop.run(text))["body"] == "here"


async def test_a_body_of_json_is_sent_with_its_headers(
    workshop: Workshop, server: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    server.put("/", b"")
    headers = "headers: {Authorization: 'Bearer {{ env.TOKEN }}'}"
    step = f"http: {{method: POST, url: URL/, {headers}, json: {{n: '{{{{ input.x }}}}'}}}}"
    await workshop.run(flow(server, step), x=5)
    (asked,) = server.asked
    assert asked.startswith("POST / ")
    assert "authorization: Bearer s3cret" in asked
    assert "content-type: application/json" in asked
    assert asked.endswith('{"n":5}')


@pytest.mark.parametrize(("step", "status"), [("", "500 Oh"), ("expect: [201]", "200 OK"), ("", "304 No")])
async def test_a_status_that_is_not_expected_is_an_error(
    workshop: Workshop, server: Canned, step: str, status: str
) -> None:
    server.put("/", b"", status=status)
    message = await workshop.failure(flow(server, f"http: {{url: URL/, {step}}}"))
    assert f"failed (http) at `GET http://127.0.0.1:{server.port}/`: it answered with status {status[:3]}" in message


async def test_a_server_that_does_not_answer_in_time_is_a_timeout(
    workshop: Workshop, server: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raincheck.workflows.actions.http.IDLE_TIMEOUT", 0.2)
    server.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"
    server.stays = True
    assert "did not answer in time" in await workshop.failure(flow(server, "http: {url: URL/}"))
    server.stays_until.set()


async def test_redirects_are_followed_to_hosts_that_are_allowed(workshop: Workshop, server: Canned) -> None:
    server.put("/old", b"", status="302 Found", Location="/new")
    server.put("/new", b"here")
    assert cast("Any", await workshop.run(flow(server, "http: {url: URL/old}")))["body"] == "here"


async def test_redirects_to_other_hosts_are_refused(workshop: Workshop, server: Canned) -> None:
    server.put("/", b"", status="302 Found", Location="http://localhost:1/")
    message = await workshop.failure(flow(server, "http: {url: URL/}"))
    assert "failed (refused)" in message
    assert "host 'localhost:1' is not allowed" in message


async def test_redirects_without_end_are_an_error(workshop: Workshop, server: Canned) -> None:
    server.put("/", b"", status="302 Found", Location="/")
    assert "redirects more than 5 times" in await workshop.failure(flow(server, "http: {url: URL/}"))
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    "url", ["http://evil.example/", "file:///etc/passwd", "http://127.0.0.1:1/", "//x", "http://[", "http://a\nb/"]
)
async def test_a_value_leads_to_no_other_host(workshop: Workshop, server: Canned, url: str) -> None:
    message = await workshop.failure(flow(server, "http: {url: '{{ input.x }}'}"), x=url)
    assert "failed (refused)" in message or "failed (http)" in message
    assert not server.asked


async def test_a_host_that_only_looks_like_an_allowed_one_is_another(workshop: Workshop, server: Canned) -> None:
    url = f"http://127.0.0.1:{server.port}@evil.example/"
    assert "host 'evil.example' is not allowed" in await workshop.failure(
        flow(server, "http: {url: '{{ input.x }}'}"), x=url
    )


async def test_no_more_of_an_answer_is_read_than_is_wanted(workshop: Workshop, server: Canned) -> None:
    server.put("/", b"x" * 5_000_000)
    assert "failed (too-large)" in await workshop.failure(flow(server, "http: {url: URL/, max_body: 1MB}"))


async def test_a_server_that_is_not_there_is_an_error(workshop: Workshop, server: Canned) -> None:
    text = flow(server, "http: {url: 'URL/'}").replace(str(server.port), "1")
    assert "127.0.0.1:1 can't be reached: nothing listens there" in await workshop.failure(text)


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


async def test_a_tool_of_another_server_is_called(workshop: Workshop) -> None:
    (workshop.folder / "server.py").write_text(TOOLS)
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
    total, error = cast("Any", await workshop.run(text, n=40))
    assert total == 42
    assert error["kind"] == "call"
    assert "refuse" in error["message"]


async def test_a_server_that_does_not_start_is_an_error(workshop: Workshop) -> None:
    text = f"""
    servers: {{tools: {{command: ['{sys.executable}', gone.py]}}}}
    workflows: {{flow: {{steps: [{{id: a, call: {{server: tools, tool: add}}}}]}}}}
    """
    assert "failed (call) at `call add of tools`" in await workshop.failure(text)


async def test_headers_reach_a_server_that_is_called_by_its_url(
    workshop: Workshop, server: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    server.put("/mcp", b"", status="403 Forbidden")
    message = await workshop.failure(f"""
    allow: {{env: [TOKEN]}}
    servers:
      s: {{url: 'http://127.0.0.1:{server.port}/mcp', headers: {{Authorization: "Bearer {{{{ env.TOKEN }}}}"}}}}
    workflows: {{flow: {{steps: [{{id: a, call: {{server: s, tool: t}}}}]}}}}
    """)
    assert "failed (call) at `call t of s`" in message
    assert server.asked, message
    assert "authorization: bearer s3cret" in server.asked[0].lower()


async def test_a_header_takes_no_second_line(workshop: Workshop, server: Canned) -> None:
    step = "http: {url: URL/, headers: {X-It: '{{ input.x }}'}}"
    refused: list[Json] = ["a\r\nEvil: yes", ["a"], None]
    for value in refused:
        assert "failed" in await workshop.failure(flow(server, step), x=value)
    assert not server.asked


async def test_a_body_that_is_not_what_it_says_is_an_error(workshop: Workshop, server: Canned) -> None:
    server.put("/", b"{", Content_Type="application/json")
    assert "neither text nor JSON" in await workshop.failure(flow(server, "http: {url: URL/}"))


async def test_an_endpoint_that_the_operator_names_is_asked_instead_of_the_caller(
    workshop: Workshop, server: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAINCHECK_SAMPLING_URL", f"http://127.0.0.1:{server.port}/v1/")
    monkeypatch.setenv("RAINCHECK_SAMPLING_KEY", "k")
    monkeypatch.setenv("RAINCHECK_SAMPLING_MODEL", "small")
    answer = {"model": "small-1", "choices": [{"message": {"role": "assistant", "content": "four"}}]}
    server.put("/v1/chat/completions", json.dumps(answer).encode())
    step = "sample: {prompt: 'two and {{ input.x }}?', system: Be brief., max_tokens: 5}"
    assert await workshop.run(flow(server, step), x="two") == {"text": "four", "model": "small-1"}
    (asked,) = server.asked
    assert "authorization: Bearer k" in asked
    assert json.loads(asked.partition("\r\n\r\n")[2]) == {
        "model": "small",
        "max_tokens": 5,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "two and two?"}],
    }


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"choices": []}', b'{"choices": [{"message": null}]}', b"{"])
async def test_an_endpoint_that_answers_nonsense_is_an_error(
    workshop: Workshop, server: Canned, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setenv("RAINCHECK_SAMPLING_URL", f"http://127.0.0.1:{server.port}/v1")
    server.put("/v1/chat/completions", answer)
    message = await workshop.failure(flow(server, "sample: {prompt: hello}"))
    assert "something else than a completion" in message
