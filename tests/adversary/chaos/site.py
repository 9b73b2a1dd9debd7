"""The processes of one topology, with their store, their log of side effects, and what they share."""

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.adversary.chaos.programs import RAINCHECK, Program, free_port, program
from tests.support.postgres.server import PostgresServer

FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
"""Debian's libfaketime, which changes what time a process sees; None if the package `faketime` is not installed."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Which processes run, and on which kind of store."""

    name: str
    servers: int
    workers: int = 0
    postgres: bool = False


TOPOLOGIES = (
    Topology("sqlite", servers=1),
    Topology("sqlite-shared", servers=3),
    Topology("postgres", servers=2, workers=2, postgres=True),
)


class Clock:
    """The wall clock of one or more processes, if it can be changed: a file that libfaketime reads at every call."""

    def __init__(self, file: Path) -> None:
        self.file, self.offset = file, 0
        self.set(0)

    def set(self, offset: int) -> None:
        self.offset = offset
        replacement = self.file.with_suffix(".new")
        replacement.write_text(f"{offset:+d}\n")
        replacement.replace(self.file)

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


@dataclass
class Site:
    """What runs, and what was done to it."""

    topology: Topology
    folder: Path
    store: str
    servers: list[Program]
    workers: list[Program]
    clocks: list[Clock]
    postgres: PostgresServer | None = None
    counts: Counter[str] = field(default_factory=Counter[str])

    @property
    def programs(self) -> list[Program]:
        return [*self.servers, *self.workers]

    @property
    def diary(self) -> Path:
        return self.folder / "diary"

    async def start(self) -> None:
        """Start what does not run. All of it must start: nothing disturbs it now."""
        stopped = [each for each in self.programs if not each.is_running]
        for each, is_started in zip(stopped, await asyncio.gather(*(each.start() for each in stopped)), strict=True):
            if not is_started:
                tail = each.log.read_text(errors="replace")[-1_000:]
                each.complaints.append(f"{each.name} did not start, although nothing disturbed it:\n{tail}")

    async def export(self) -> Mapping[str, Mapping[str, Any]]:
        """Return all tasks in the store, by their ids, as an operator exports them."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(RAINCHECK),
            *("tasks", "export", "--store", self.store, "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**26,
        )
        output, errors = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"the export failed: {errors.decode()}")
        tasks = map(json.loads, output.decode().splitlines())
        return {task["id"]: task for task in tasks}


@asynccontextmanager
async def running_site(topology: Topology, *, fakes_time: bool) -> AsyncGenerator[Site]:
    """Start a site in a temporary folder, and end and remove all of it afterwards."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raincheck-chaos-")))
        postgres = None
        store = str(folder / "tasks.db")
        if topology.postgres:
            postgres = await asyncio.to_thread(PostgresServer)
            stack.push_async_callback(asyncio.to_thread, postgres.close)
            await asyncio.to_thread(postgres.start)
            store = await asyncio.to_thread(postgres.create_database, "chaos")
        site = _describe(topology, folder, store, fakes_time=fakes_time and FAKETIME is not None)
        site.postgres = postgres
        stack.push_async_callback(_end, site)
        first, *_ = site.programs
        await first.start()  # it creates the tables
        await site.start()
        yield site


def _describe(topology: Topology, folder: Path, store: str, *, fakes_time: bool) -> Site:
    # Processes on one file are on one machine, and have one clock.
    number_of_clocks = (topology.servers + topology.workers if topology.postgres else 1) if fakes_time else 0
    clocks = [Clock(folder / f"clock-{number}") for number in range(number_of_clocks)]
    count = topology.servers + topology.workers
    environments = [_environment(folder, clocks, number) for number in range(count)]
    options = ("--store", store)
    servers = [
        # The first server of several on PostgreSQL leaves the work to others.
        program(
            f"server-{number}",
            "serve",
            (*options, "--no-work") if topology.workers and number == 0 else options,
            folder,
            environments[number],
            free_port(),
        )
        for number in range(topology.servers)
    ]
    workers = [
        program(f"worker-{number}", "worker", options, folder, environments[topology.servers + number])
        for number in range(topology.workers)
    ]
    return Site(topology, folder, store, servers, workers, clocks)


def _environment(folder: Path, clocks: list[Clock], number: int) -> Mapping[str, str]:
    environment = {"CHAOS_DIARY": str(folder / "diary")}
    if clocks:
        environment.update(clocks[number % len(clocks)].environment)
    return environment


async def _end(site: Site) -> None:
    for each in site.programs:
        each.process = each.process if each.is_running else None
    await asyncio.gather(*(each.kill() for each in site.programs))
