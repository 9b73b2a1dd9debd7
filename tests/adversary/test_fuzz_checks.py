"""The checks of the fuzzer find planted faults: in answers, on connections, in logs and in whole servers."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.adversary.fuzz.checks import connection_faults, leaks, log_faults, owed_id, response_faults
from tests.adversary.fuzz.findings import Findings
from tests.adversary.fuzz.http_fuzzer import HttpFuzzer
from tests.adversary.fuzz.line_fuzzer import LineFuzzer
from tests.adversary.fuzz.lines import connect_unix
from tests.adversary.fuzz.messages import Knowledge
from tests.adversary.fuzz.secrets import PlantedSecrets
from tests.adversary.fuzz.values import corrupt, encode, fields_of, hostile_value, mutate
from tests.adversary.outcome import Outcome
from tests.adversary.resources.attack import attack_once
from tests.adversary.served.http import HttpResponse, exchange
from tests.adversary.served.process import ServerProcess

pytestmark = pytest.mark.anyio

ASKED = b'{"jsonrpc":"2.0","id":7,"method":"ping"}'
RIGHT = b'{"jsonrpc":"2.0","id":7,"result":{}}'

EXPECTED_FAULTS = [
    (b'{"jsonrpc":"2.0","id":8,"result":{}}', "under the id 8"),
    (b'{"jsonrpc":"2.0","id":"7","result":{}}', "under the id '7'"),
    (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no"}}', "under the id None"),
    (b'{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"x"}}', "not exactly one"),
    (b'{"jsonrpc":"2.0","id":7}', "not exactly one"),
    (b'{"id":7,"result":{}}', "no jsonrpc"),
    (b'{"jsonrpc":"2.0","id":7,"error":{"code":"x","message":"x"}}', "error code 'x'"),
    (b'{"jsonrpc":"2.0","id":7,"error":{"code":1}}', "without a message"),
    (b'{"jsonrpc":"2.0","id":7,"result":NaN}', "no JSON"),
    (b'{"jsonrpc":"2.0","id":7,"result":"\xff"}', "no JSON"),
    (b"[]", "no JSON-RPC object"),
    (b"", "no JSON"),
]


def faults_of(body: bytes, *, status: int = 200, content_type: bytes = b"application/json", **more: Any) -> list[str]:
    response = HttpResponse(status, {b"content-type": content_type}, body, is_complete=True, **more)
    return response_faults(ASKED, response, 100, is_post=True, may_wait=False)


def stream(*messages: bytes) -> bytes:
    return b"".join(b"event: message\ndata: %s\n\n" % message for message in messages)


def test_a_right_answer_has_no_faults() -> None:
    notification = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}'
    assert faults_of(RIGHT) == []
    assert faults_of(stream(notification, RIGHT), content_type=b"text/event-stream") == []
    assert faults_of(b"", status=406, content_type=b"") == []


@pytest.mark.parametrize(("body", "fault"), EXPECTED_FAULTS)
def test_a_wrong_answer_is_found(body: bytes, fault: str) -> None:
    assert fault in "; ".join(faults_of(body))
    if body:
        assert fault in "; ".join(faults_of(stream(body), content_type=b"text/event-stream"))


def test_wrong_counts_of_answers_are_found() -> None:
    assert faults_of(stream(RIGHT, RIGHT), content_type=b"text/event-stream") == ["was answered 2 times"]
    assert faults_of(stream(), content_type=b"text/event-stream") == ["ended its stream without an answer"]
    assert faults_of(b"", status=202) == ["was accepted as a notification, and not answered"]
    assert faults_of(b"", status=0) == ["was never answered"]


def test_server_errors_are_found() -> None:
    assert "HTTP 500" in faults_of(RIGHT, status=500)[0]
    assert "HTTP 418" in faults_of(b"tea", status=418, content_type=b"text/plain")[0]
    assert faults_of(RIGHT, problem="two lengths") == ["is not HTTP: two lengths"]


def test_an_answer_to_a_large_request_may_be_lost_with_its_connection() -> None:
    lost = HttpResponse(is_reset=True)
    assert response_faults(ASKED, lost, 10**6, is_post=True, may_wait=False) == []
    assert response_faults(ASKED, lost, 100, is_post=True, may_wait=False) == ["was never answered"]


def test_leaks_are_found() -> None:
    assert leaks(b"all is well", {"a token": b"tok"}) == []
    assert leaks(b"the tok en", {"a token": b"tok"}) == ["leaks a token"]
    assert "shows internals" in leaks(b"Traceback (most recent call last):", {})[0]
    assert leaks(b"tool 'crash' failed unexpectedly: ask", {}) == []
    assert leaks(b"tool 'echo' failed unexpectedly: ask", {}) == ["tool 'echo' failed unexpectedly"]


def test_what_must_be_answered_is_told_from_what_need_not() -> None:
    assert owed_id(ASKED) == 7
    for other in (b"", b"[]", b'{"jsonrpc":"2.0","method":"ping"}', ASKED.replace(b"7", b"true"), b"\xff" + ASKED):
        assert owed_id(other) is None


def test_lines_answered_twice_or_never_are_found() -> None:
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "result": {}}
    assert connection_faults([ASKED], [answer], ()) == []
    assert "answered 2 times" in connection_faults([ASKED], [answer, answer], ())[0]
    assert "never answered" in connection_faults([ASKED], [], ())[0]
    assert connection_faults([ASKED], [], {7}) == []
    assert "sent 0 times" in connection_faults([], [answer], ())[0]


def test_errors_in_the_log_are_found() -> None:
    assert log_faults([{"level": "WARNING", "message": "x"}, {"level": "ERROR", "tool": "crash", "message": "x"}]) == []
    assert "boom" in log_faults([{"level": "ERROR", "tool": "echo", "message": "boom"}])[0]
    assert "Traceback" in log_faults([{"message": "Traceback (most recent call last)"}])[0]


def test_a_seed_repeats_what_is_sent() -> None:
    def draw() -> list[bytes]:
        random = Random("seed")
        values = [mutate(random, {"a": [1, {"b": hostile_value(random)}]}, 2) for _ in range(200)]
        return [corrupt(random, encode(random, value)) for value in values]

    assert draw() == draw()


@asynccontextmanager
async def planted_http(respond: Callable[[dict[str, Any]], bytes]) -> AsyncGenerator[int]:
    """Serve HTTP with a fault: `respond` gets the message that was sent."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            sizes = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = await reader.readexactly(sizes[0])
            writer.write(respond(fields_of(json.loads(body))))
            await writer.drain()
        except (
            ValueError,
            IndexError,
            OSError,
            RecursionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def http(body: bytes, status: bytes = b"200 OK", content_type: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n" % (status, content_type, len(body))
    return head + b"mcp-session-id: s\r\nconnection: close\r\n\r\n" + body


def right_answer(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": {}}).encode()


def twice(message: dict[str, Any]) -> bytes:
    answer = right_answer(message)
    return http(stream(answer, answer), content_type=b"text/event-stream")


def server_error(_: dict[str, Any]) -> bytes:
    return http(b"oops", b"500 Internal Server Error")


def leaking(message: dict[str, Any]) -> bytes:
    return http(right_answer(message).replace(b"{}", b'{"x": "the-secret"}'))


def dead(_: dict[str, Any]) -> bytes:
    return b""


SECRETS = PlantedSecrets("the-secret", Path("/the/folder"), "verified-victim.token", "the victim's text")

KNOWN = Knowledge(("echo",), foreign=("01" + "a" * 42,))


@pytest.mark.parametrize(
    ("respond", "fault"),
    [
        (twice, "was answered 2 times"),
        (server_error, "HTTP 500"),
        (leaking, "leaks a secret of the environment"),
        (dead, "was never answered"),
    ],
)
async def test_the_fuzzer_finds_a_planted_fault_over_http(
    respond: Callable[[dict[str, Any]], bytes], fault: str
) -> None:
    outcome = Outcome()
    async with planted_http(respond) as port:
        await HttpFuzzer(port, KNOWN, SECRETS, outcome, Findings(outcome)).burst("seed")
    assert any(fault in violation for violation in outcome.violations), outcome.violations
    assert outcome.counts["http requests"] > 0


async def test_the_fuzzer_finds_a_task_of_another_owner_that_differs() -> None:
    def respond(message: dict[str, Any]) -> bytes:
        task = fields_of(message.get("params")).get("taskId")
        return http(right_answer(message), b"404 Not Found" if task in KNOWN.foreign else b"200 OK")

    outcome = Outcome()
    async with planted_http(respond) as port:
        await HttpFuzzer(port, KNOWN, SECRETS, outcome, Findings(outcome)).burst("seed")
    assert any("differs from an unknown one" in violation for violation in outcome.violations)


@pytest.mark.parametrize(("answers", "fault"), [(2, "answered 2 times"), (0, "is not served after a burst")])
async def test_the_fuzzer_finds_a_planted_fault_on_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int, fault: str
) -> None:
    monkeypatch.setattr("tests.adversary.fuzz.line_fuzzer.PATIENCE", 0.1)
    monkeypatch.setattr("tests.adversary.fuzz.lines.SETTLE_TIME", 0.0)
    monkeypatch.setattr("tests.adversary.fuzz.lines.LATER_REQUESTS", 0)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if (id_ := owed_id(line)) is not None:
                writer.write((right_answer({"id": id_}) + b"\n") * answers)
        writer.close()

    async def control() -> None: ...

    path = str(tmp_path / "s")
    outcome = Outcome()
    server = await asyncio.start_unix_server(handle, path, limit=2**26)
    async with server:
        connection = await connect_unix(Random(1), path)
        await LineFuzzer("unix", KNOWN, SECRETS, outcome, Findings(outcome)).burst("seed", connection, control)
        await connection.close()
    assert any(fault in violation for violation in outcome.violations), outcome.violations


async def test_the_attack_on_resources_finds_a_server_that_serves_nobody_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.adversary.resources.attack.PATIENCE", 0.3)
    is_attacked = asyncio.Event()

    def respond(message: dict[str, Any]) -> bytes:
        result = {"taskId": "t", "status": "completed"}
        answer = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
        return b"" if is_attacked.is_set() else http(answer)

    async def attack(port: int, _: Random, stop: asyncio.Event) -> Any:
        is_attacked.set()
        await exchange(port, b"", 0.01)
        await stop.wait()
        return {}

    sleeper = await asyncio.create_subprocess_exec("sleep", "60")
    log = tmp_path / "log"
    log.touch()
    outcome = Outcome()
    try:
        async with planted_http(respond) as port:
            server = ServerProcess(sleeper, log, port)
            await attack_once(server, attack, Random(1), 0.1, (0, 0), outcome)
    finally:
        sleeper.kill()
        await sleeper.wait()
    assert any("callers were not served" in violation for violation in outcome.violations)
    assert any("does not serve afterwards" in violation for violation in outcome.violations)


async def test_the_attack_on_resources_finds_a_server_that_ended_and_one_that_keeps_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.adversary.resources.attack.PATIENCE", 0.6)

    def respond(message: dict[str, Any]) -> bytes:
        result = {"taskId": "t", "status": "completed"}
        return http(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode())

    opened: list[int] = []

    async def attack(*_: object) -> Any:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(40))
        return {}

    log = tmp_path / "log"
    log.write_text("the last words", encoding="utf-8")
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    myself: Any = type("Myself", (), {"pid": os.getpid(), "returncode": None})()
    outcome = Outcome()
    async with planted_http(respond) as port:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough
        await attack_once(ServerProcess(ended, log, port), attack, Random(1), 0.1, (0, 0), outcome)
        await attack_once(ServerProcess(myself, log, port), attack, Random(1), 0.1, (before, 0), outcome)
    for descriptor in opened:
        os.close(descriptor)
    assert any("the server ended with 0" in violation for violation in outcome.violations)
    assert any("file descriptors open" in violation for violation in outcome.violations)
