"""The fuzzer: bursts of hostile messages over every transport, beside another owner."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.adversary.fuzz.checks import log_faults
from tests.adversary.fuzz.findings import Findings
from tests.adversary.fuzz.http_fuzzer import HttpFuzzer
from tests.adversary.fuzz.line_fuzzer import LineFuzzer
from tests.adversary.fuzz.lines import connect_stdio, connect_unix
from tests.adversary.fuzz.messages import Knowledge
from tests.adversary.fuzz.secrets import PlantedSecrets
from tests.adversary.fuzz.victim import Victim
from tests.adversary.fuzz.workflow_fuzzer import WorkflowFuzzer, serving_workflows
from tests.adversary.outcome import Outcome
from tests.adversary.served.caller import PoliteCaller, Refused, Unanswered
from tests.adversary.served.process import ServerProcess, started

TOOLS_FILE = Path(__file__).parents[1] / "served/tools.py"

TOOLS = ("plain", "echo", "remember", "crash", "nap", "wait", "confirm", "typed", "measure", "large")

MAX_GROWTH = 200 * 2**20
"""Bytes that a server may grow during a run, beyond twice its size after the first round."""

STDIO_EVERY = 4
"""Rounds from one process on stdio to the next, since each of them has to start first."""


@dataclass
class FuzzRun:
    """The servers of a run, and what fuzzes them."""

    folder: Path
    servers: dict[str, ServerProcess]
    secrets: PlantedSecrets
    victim: Victim
    known: Knowledge
    outcome: Outcome
    findings: Findings
    http: HttpFuzzer
    workflows: WorkflowFuzzer

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.folder, self.secrets)

    async def control(self) -> None:
        """Make a request that must be answered."""
        try:
            await PoliteCaller(self.servers["http"].port, "Bearer control").request("tools/list")
        except (Unanswered, Refused) as error:
            self.findings.add("control", [f"a caller beside the fuzzer was not served: {error}"])
        self.outcome.counts["control requests"] += 1


def environment(folder: Path, secrets: PlantedSecrets) -> dict[str, str]:
    return {"RAINCHECK_STORE": str(folder / "tasks.db"), "PLANTED_SECRET": secrets.environment}


async def run(random: Random, seconds: float) -> Outcome:
    """Fuzz for about this many seconds."""
    outcome = Outcome()
    seed = f"{random.getrandbits(64):x}"
    deadline = asyncio.get_running_loop().time() + seconds
    with tempfile.TemporaryDirectory(prefix="adversary-") as folder:
        async with _prepared(Path(folder), Random(seed), outcome) as fuzz:
            sizes: dict[str, int] = {}
            number = 0
            while number == 0 or (asyncio.get_running_loop().time() < deadline and _all_alive(fuzz)):
                await _round(fuzz, seed, number)
                sizes = sizes or {name: server.resident_bytes for name, server in fuzz.servers.items()}
                number += 1
            fuzz.outcome.counts["rounds"] = number
            await _check_end(fuzz, sizes)
        fuzz.findings.close()
    return outcome


@asynccontextmanager
async def _prepared(folder: Path, random: Random, outcome: Outcome) -> AsyncGenerator[FuzzRun]:
    secrets = PlantedSecrets.draw(random, folder)
    env = environment(folder, secrets)
    async with (
        started(folder, TOOLS_FILE, ["--http", "127.0.0.1:0"], env=env) as http,
        started(folder, TOOLS_FILE, ["--unix", str(folder / "s.sock")], env=env) as unix,
        serving_workflows(folder, http.port, env) as flows,
    ):
        victim = await Victim.create(http.port, secrets)
        known = Knowledge(TOOLS, foreign=tuple(victim.tasks.values()))
        findings = Findings(outcome)
        servers = {"http": http, "unix": unix, "workflows": flows}
        fuzzer = HttpFuzzer(http.port, known, secrets, outcome, findings)
        workflows = WorkflowFuzzer(flows.port, secrets, outcome, findings)
        yield FuzzRun(folder, servers, secrets, victim, known, outcome, findings, fuzzer, workflows)


async def _round(fuzz: FuzzRun, seed: str, number: int) -> None:
    """Send a burst over each transport."""
    common = (fuzz.known, fuzz.secrets, fuzz.outcome, fuzz.findings)
    await fuzz.http.burst(f"{seed} http {number}")
    await fuzz.control()
    name = f"{seed} unix {number}"
    connection = await connect_unix(Random(f"{name} replies"), str(fuzz.folder / "s.sock"))
    await LineFuzzer("unix", *common).burst(name, connection, fuzz.control)
    await connection.close()
    await fuzz.workflows.burst(f"{seed} workflows {number}")
    if number % STDIO_EVERY == 0:
        await _stdio_burst(fuzz, f"{seed} stdio {number}")


async def _stdio_burst(fuzz: FuzzRun, name: str) -> None:
    async with started(fuzz.folder, TOOLS_FILE, ["--stdio"], env=fuzz.environment) as server:
        connection = connect_stdio(Random(f"{name} replies"), server.process)
        fuzzer = LineFuzzer("stdio", fuzz.known, fuzz.secrets, fuzz.outcome, fuzz.findings)
        await fuzzer.burst(name, connection, fuzz.control)
        if not server.is_alive:
            fuzz.findings.add(name, [f"the server on stdio ended with {server.process.returncode}"])
        await connection.close()
    _check_log(fuzz, "stdio", server)


def _all_alive(fuzz: FuzzRun) -> bool:
    for name, server in fuzz.servers.items():
        if not server.is_alive:
            log = server.log_bytes()[-2_000:]
            fuzz.findings.add(name, [f"the server ended with {server.process.returncode}: {log!r}"])
    return all(server.is_alive for server in fuzz.servers.values())


async def _check_end(fuzz: FuzzRun, sizes: dict[str, int]) -> None:
    if not _all_alive(fuzz):
        return
    await fuzz.control()
    fuzz.findings.add("victim", await fuzz.victim.faults())
    for name, server in fuzz.servers.items():
        grown = server.resident_bytes
        fuzz.outcome.counts[f"MB of the {name} server at the start"] = sizes[name] // 2**20
        fuzz.outcome.counts[f"MB of the {name} server at the end"] = grown // 2**20
        if grown > 2 * sizes[name] + MAX_GROWTH:
            fuzz.findings.add(name, [f"the server grew from {sizes[name]} to {grown} bytes"])
        _check_log(fuzz, name, server)


def _check_log(fuzz: FuzzRun, name: str, server: ServerProcess) -> None:
    faults = log_faults(server.log_records())
    log = server.log_bytes()
    faults += [f"the log has {what}" for what, secret in fuzz.secrets.in_logs.items() if secret in log]
    fuzz.outcome.counts["log records"] += log.count(b"\n")
    fuzz.findings.add(f"log of {name}", faults)
