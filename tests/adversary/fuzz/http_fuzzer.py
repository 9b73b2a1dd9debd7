"""Bursts of hostile HTTP requests."""

import asyncio
import re
from random import Random
from typing import Any

from tests.adversary.fuzz.checks import leaks, response_faults
from tests.adversary.fuzz.findings import Findings
from tests.adversary.fuzz.http_requests import HttpRequest, fuzzed_request
from tests.adversary.fuzz.messages import TASK_METHODS, UNKNOWN_ID, V2025, Knowledge, capabilities
from tests.adversary.fuzz.secrets import PlantedSecrets
from tests.adversary.fuzz.values import encode, fields_of, mutate
from tests.adversary.outcome import Outcome
from tests.adversary.served.caller import PoliteCaller, answer_in
from tests.adversary.served.http import HttpResponse, exchange, request_bytes

BURST, AT_ONCE = 80, 10

QUICK = 1.5
"""Seconds for requests that may wait for a task."""

PATIENCE = 300.0
"""Seconds for all other requests. Only a server that never answers takes as long."""

FIRST_SESSIONS, MAX_SESSIONS = 4, 12

TASK_ID = re.compile(rb"\b01[0-9a-f]{42}\b")


class HttpFuzzer:
    """Sends bursts of requests to one server, and checks every response."""

    def __init__(
        self, port: int, known: Knowledge, secrets: PlantedSecrets, outcome: Outcome, findings: Findings
    ) -> None:
        self._port = port
        self._known = known
        self._secrets = secrets.in_answers
        self._outcome = outcome
        self._findings = findings
        self._sessions: list[tuple[bytes, bytes]] = []
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def burst(self, seed: str) -> None:
        """Send one burst, all of which is drawn from this seed and from the ids that are known by then."""
        random = Random(seed)
        for _ in range(1 if self._sessions else FIRST_SESSIONS):
            await self._open_session(random)
        requests = [fuzzed_request(random, self._known, self._sessions) for _ in range(BURST)]
        twins = [_twins(random, self._known) for _ in range(BURST // 20)]
        async with asyncio.TaskGroup() as group:
            for request in requests:
                group.create_task(self._send(seed, request))
            for mine, theirs in twins:
                group.create_task(self._compare(seed, mine, theirs))

    async def _open_session(self, random: Random) -> None:
        """Start a session of 2025-11-25, of a caller that is known from then on."""
        authorization = b"Bearer fuzzer-%d" % random.randrange(8)
        headers = [
            (b"host", b"127.0.0.1:80"),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"authorization", authorization),
        ]
        client = {"name": "fuzzer", "version": "1"}
        params = {"protocolVersion": V2025, "capabilities": capabilities(random), "clientInfo": client}
        body = encode(random, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        response = await exchange(self._port, request_bytes(b"POST", b"/mcp", headers, body), PATIENCE)
        session = response.headers.get(b"mcp-session-id")
        if session is None:
            self._findings.add("initialize", [f"a session was not opened: HTTP {response.status}"], body)
            return
        ready = encode(random, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        headers += [(b"mcp-session-id", session), (b"mcp-protocol-version", V2025.encode())]
        await exchange(self._port, request_bytes(b"POST", b"/mcp", headers, ready), PATIENCE)
        self._sessions = [*self._sessions, (session, authorization)][-MAX_SESSIONS:]
        self._outcome.counts["http sessions"] += 1

    async def _send(self, seed: str, request: HttpRequest) -> None:
        async with self._slots:
            response = await exchange(self._port, request.data, QUICK if request.may_wait else PATIENCE)
        self._outcome.counts["http requests"] += 1
        self._outcome.counts[f"http answered with {response.status or 'nothing'}"] += 1
        answer = answer_in(response) or {}
        self._outcome.counts[f"http {'results' if 'result' in answer else _code(answer)}"] += 1
        faults = response_faults(request.body, response, len(request.data), request.is_post, request.may_wait)
        self._findings.add(seed, faults + leaks(response.body, self._unsent(request.data)), request.data)
        self._learn(response)

    def _unsent(self, data: bytes) -> dict[str, bytes]:
        """Return the secrets that the request itself did not contain."""
        return {what: secret for what, secret in self._secrets.items() if secret not in data}

    def _learn(self, response: HttpResponse) -> None:
        for found in TASK_ID.findall(response.body)[:3]:
            if (id_ := found.decode()) not in self._known.foreign and id_ != UNKNOWN_ID:
                self._known.own.append(id_)

    async def _compare(self, seed: str, mine: bytes, theirs: bytes) -> None:
        """Ask for an unknown task and for another owner's in the same way: the answers must not differ."""
        async with self._slots:
            unknown = await exchange(self._port, mine, PATIENCE)
            foreign = await exchange(self._port, theirs, PATIENCE)
        self._outcome.counts["comparisons of unknown and foreign tasks"] += 1
        first, second = (_without_ids(response) for response in (unknown, foreign))
        if first != second:
            self._findings.add(
                seed, [f"another owner's task differs from an unknown one: {first} and {second}"], theirs
            )


def _code(answer: dict[str, Any]) -> str:
    return f"errors {fields_of(answer.get('error')).get('code')}" if answer else "answers without a message"


def _without_ids(response: HttpResponse) -> tuple[int, bytes]:
    return response.status, TASK_ID.sub(b"ID", response.body)


def _twins(random: Random, known: Knowledge) -> tuple[bytes, bytes]:
    """Return two requests that differ only in the task that they name: an unknown one, and another owner's."""
    method = random.choice([name for name in TASK_METHODS if name not in ("tasks/result", "tasks/list")])
    caller = PoliteCaller(0, "Bearer fuzzer-1")
    params: dict[str, Any] = {"taskId": UNKNOWN_ID, "inputResponses": {"1": {"action": "accept", "content": {}}}}
    more = {name: value for name, value in params.items() if name != "taskId"}
    fields = fields_of(mutate(random, more, random.randrange(3)))
    request = caller.encode(method, {**fields, "taskId": UNKNOWN_ID})
    return request, request.replace(UNKNOWN_ID.encode(), random.choice(known.foreign).encode())
