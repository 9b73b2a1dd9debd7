"""What is done to the processes of a site while they work, drawn from a seed."""

import asyncio
import random
import resource
import signal
from collections.abc import Awaitable, Callable
from functools import partial

from tests.adversary.chaos.programs import Program
from tests.adversary.chaos.site import Clock, Site
from tests.support.postgres.server import PostgresServer

LEASE = 2.0
"""As in the served program. A process that is stopped for longer loses its tasks."""

JUMPS = (60, 1_800, 3_600)
"""Seconds by which a clock jumps: less than tasks are kept after their end."""

FULL_AT = 50_000
"""Bytes beyond which no file grows while the disk is full: less than every file here has after a moment."""

Disturbance = Callable[[random.Random], Awaitable[None]]


async def disturb(site: Site, draw: random.Random, seconds: float) -> None:
    """Disturb each process, each clock and the database, independently of each other. At the end all of it runs."""
    ends_at = asyncio.get_running_loop().time() + seconds
    # Starting takes long on a busy machine: some processes of several always run.
    turns = asyncio.Semaphore(max(1, len(site.programs) - 2))
    disturbances: list[tuple[Disturbance, float]] = [
        *((partial(_end_and_start, site, each, turns), 2.0) for each in site.programs),
        *((partial(_hold_up, site, each), 3.0) for each in site.programs),
    ]
    disturbances += [(partial(_jump, site, clock), 2.0) for clock in site.clocks]
    if site.postgres is not None:
        disturbances.append((partial(_disturb_database, site, site.postgres), 5.0))
    seeds = [draw.getrandbits(32) for _ in disturbances]
    await asyncio.gather(
        *(
            _repeat(disturbance, random.Random(seed), pause, ends_at)
            for (disturbance, pause), seed in zip(disturbances, seeds, strict=True)
        )
    )
    await site.start()


async def _repeat(disturbance: Disturbance, draw: random.Random, pause: float, ends_at: float) -> None:
    # A fault that has begun is also taken back.
    loop = asyncio.get_running_loop()
    while (wait := draw.uniform(0.1, 2 * pause)) < ends_at - loop.time():
        await asyncio.sleep(wait)
        await disturbance(draw)


async def _end_and_start(site: Site, program: Program, turns: asyncio.Semaphore, draw: random.Random) -> None:
    async with turns:
        await draw.choice((_kill, _kill, _terminate))(site, program, draw)


async def _hold_up(site: Site, program: Program, draw: random.Random) -> None:
    kinds = [_stop]
    if site.postgres is None and hasattr(resource, "prlimit"):
        kinds.append(_fill_disk)
    await draw.choice(kinds)(site, program, draw)


async def _kill(site: Site, program: Program, draw: random.Random) -> None:
    site.counts["kills"] += 1
    await program.kill()
    await asyncio.sleep(draw.choice((0, 0, 0.5, LEASE + 0.5)))
    await program.start()


async def _stop(site: Site, program: Program, draw: random.Random) -> None:
    site.counts["stops"] += 1
    program.send(signal.SIGSTOP)
    await asyncio.sleep(draw.choice((0.3, LEASE + 0.5, LEASE + 1.5)))
    program.send(signal.SIGCONT)


async def _terminate(site: Site, program: Program, draw: random.Random) -> None:
    del draw
    site.counts["restarts"] += 1
    await program.terminate()
    await program.start()


async def _fill_disk(site: Site, program: Program, draw: random.Random) -> None:
    site.counts["full disks"] += 1
    program.limit_files(FULL_AT)
    await asyncio.sleep(draw.uniform(0.2, 1.5))
    program.limit_files(None)


async def _jump(site: Site, clock: Clock, draw: random.Random) -> None:
    site.counts["clock jumps"] += 1
    clock.set(draw.choice(JUMPS) * draw.choice((-1, 0, 1)))


async def _disturb_database(site: Site, database: PostgresServer, draw: random.Random) -> None:
    kind = draw.choice(("kill", "immediate", "read-only"))
    pause = draw.choice((0.0, 0.5, LEASE))
    if kind == "read-only":
        site.counts["read-only databases"] += 1
        await asyncio.to_thread(_make_read_only, database, "on")
        await asyncio.sleep(pause + 0.3)
        await asyncio.to_thread(_make_read_only, database, "off")
        return
    site.counts["database crashes"] += 1
    await asyncio.to_thread(database.kill if kind == "kill" else partial(database.stop, "immediate"))
    await asyncio.sleep(pause)
    await asyncio.to_thread(database.start)


def _make_read_only(database: PostgresServer, value: str) -> None:
    database.run(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    database.run("SELECT pg_reload_conf()")
