"""Bursts of hostile lines, over stdio and the Unix socket."""

from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import Any

from tests.adversary.fuzz.checks import connection_faults, leaks
from tests.adversary.fuzz.findings import Findings
from tests.adversary.fuzz.lines import LineConnection
from tests.adversary.fuzz.messages import (
    V2025,
    V2026,
    Knowledge,
    capabilities,
    may_wait,
    meta,
    some_message,
    with_new_id,
)
from tests.adversary.fuzz.secrets import PlantedSecrets
from tests.adversary.fuzz.values import corrupt, encode, fields_of
from tests.adversary.outcome import Outcome

BURST = 60

PATIENCE = 300.0
"""Seconds for the last request of a burst. Only a server that never answers takes as long."""

_ids = count(1)


class LineFuzzer:
    """Sends a burst over a connection, and checks every answer."""

    def __init__(
        self, name: str, known: Knowledge, secrets: PlantedSecrets, outcome: Outcome, findings: Findings
    ) -> None:
        self._name = name
        self._known = known
        self._secrets = secrets.in_answers
        self._outcome = outcome
        self._findings = findings

    async def burst(self, seed: str, connection: LineConnection, control: Callable[[], Awaitable[object]]) -> None:
        """Send one burst as a caller of one generation, and then a valid request, which must be answered."""
        random = Random(seed)
        version = random.choice((V2025, V2026))
        lines = [_line(random, version, self._known) for _ in range(BURST)]
        if version == V2025:
            await self._initialize(seed, connection, random)
        for line, waits, cancelled in lines:
            connection.excused.update(cancelled)
            await connection.send(line, may_wait=waits)
        if await connection.ask(_ping(random, version), PATIENCE) is None:
            self._findings.add(seed, [f"the connection is not served after a burst of {version}"], lines[-1][0])
        await connection.settle(control)
        self._outcome.counts[f"{self._name} lines"] += BURST
        self._outcome.counts[f"{self._name} answers"] += len(connection.answers)
        faults = connection_faults(connection.sent, connection.answers, connection.excused) + connection.faults
        sent = b"\n".join(line for line, _, _ in lines)
        unsent = {what: secret for what, secret in self._secrets.items() if secret not in sent}
        self._findings.add(seed, faults + leaks(b"".join(connection.received), unsent))

    async def _initialize(self, seed: str, connection: LineConnection, random: Random) -> None:
        client = {"name": "fuzzer", "version": "1"}
        params = {"protocolVersion": V2025, "capabilities": capabilities(random), "clientInfo": client}
        message = {"jsonrpc": "2.0", "id": f"first-{next(_ids)}", "method": "initialize", "params": params}
        if await connection.ask(message, PATIENCE) is None:
            self._findings.add(seed, ["initialize was not answered"])
        await connection.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')


def _ping(random: Random, version: str) -> dict[str, Any]:
    """Return a valid request."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": f"control-{next(_ids)}", "method": "tools/list", "params": {}}
    if version == V2026:
        message["params"] = {"_meta": meta(random)}
    return message


def _line(random: Random, version: str, known: Knowledge) -> tuple[bytes, bool, set[str | int]]:
    """Return a line, whether its request may wait, and the ids of requests that it cancels."""
    message = with_new_id(some_message(random, version, known), random)
    line = encode(random, message)
    if random.random() < 0.08:
        line = corrupt(random, line).replace(b"\r", b" ")
    return line, may_wait(message), _cancelled(message)


def _cancelled(message: Any) -> set[str | int]:
    id_ = fields_of(fields_of(message).get("params")).get("requestId")
    return {id_} if isinstance(id_, str | int) else set()
