"""What a load needs, from what each operation costs: arithmetic alone, so that it can be checked by hand."""

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Literal, TypeAlias

Operation: TypeAlias = Literal["create", "poll", "run", "step", "answer", "cancel", "prune"]
Wall: TypeAlias = Literal["notices", "hearing", "database CPU", "disk", "vacuum", "connections"]

SERVED: tuple[Operation, ...] = ("create", "poll", "answer", "cancel", "prune")
"""What servers do. The rest is done by workers."""

SERVER_CONNECTIONS = 10
"""Of a process: a pool of up to 8, one that listens, one for heartbeats."""

WORKER_CONNECTIONS = 15
"""A worker has a pool of up to 4 besides, and one more that listens."""

HEARD_BY = 3
"""How many listened while the costs were measured: what it takes to tell those is part of them."""

HEARTBEAT = 5.0
"""Seconds between two extensions of a lease."""

BLOAT = 1.5
"""How much larger tables are than their rows, as long as vacuum keeps up."""

VACUUM_AT = 0.05
"""The part of `tasks` that has to be dead for a vacuum to begin. The schema says so."""

BUSY = 0.6
"""The part of its time that a core may be at work without making others wait."""

FILLED = 0.8
"""The part of a worker's places that may be taken, likewise."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operation takes. CPU in seconds."""

    database: float
    process: float
    commits: float
    """Transactions that write."""
    notices: float
    """Those that tell others."""
    wal: float
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured."""

    machine: str
    operations: dict[Operation, Cost]
    heard_process: float
    """CPU seconds of a process for each change that it hears of, made by others."""
    heard_database: float
    """CPU seconds of PostgreSQL for each change and each process that hears of it."""
    idle_process: float
    """CPU seconds in a second, of a process without work."""
    idle_database: float
    """Likewise of PostgreSQL, for each process."""
    live_bytes: float
    kept_bytes: float
    """Of tables and indexes, for a task that lives, and for one that has ended."""
    vacuumed_bytes: float
    """How many of the latter are of the table that is rewritten with every change."""
    notified_commits: float
    plain_commits: float
    """Commits a second, of small transactions by many at once that tell others something, and that don't."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked for. Times in seconds."""

    live: float
    polls: float
    lifetime: float = 86_400.0
    """From a task's creation to its end, most of which it waits."""
    busy: float = 5.0
    """How long of it a body runs."""
    kept: float = 86_400.0
    """How long it stays after its end."""
    steps: float = 5.0
    answers: float = 1.0
    cancelled: float = 0.05
    """The part of the tasks that is cancelled."""

    @property
    def created(self) -> float:
        """Tasks a second."""
        return self.live / self.lifetime

    def rates(self) -> dict[Operation, float]:
        """Operations a second."""
        # Whoever is answered was parked, and begins once more.
        runs = self.created * (1 + self.answers)
        return {
            "create": self.created,
            "poll": self.polls,
            "run": runs,
            "step": self.created * self.steps,
            "answer": self.created * self.answers,
            "cancel": self.created * self.cancelled,
            "prune": self.created,
        }


@dataclass(frozen=True, slots=True)
class Machine:
    """The PostgreSQL that there is."""

    cores: float = 16.0
    syncs: float = 1_000.0
    """How many notifying commits a second it makes, one after the other: a property of its disk."""
    disk: float = 1e12
    connections: float = 500.0
    vacuum: float = 100e6
    """Bytes a second that autovacuum gets through, about, at its default pace."""
    concurrency: float = 64
    """Attempts at once in a worker."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What it takes."""

    servers: float
    workers: float
    """Processes. Infinitely many, if hearing of changes leaves them no time."""
    cores: float
    commits: float
    notices: float
    wal: float
    """Bytes a second."""
    disk: float
    used: dict[Wall, float]
    """How much of each bound is used: above 1 it can't be done."""

    @property
    def tightest(self) -> Wall:
        return max(self.used, key=lambda wall: self.used[wall])

    @property
    def is_possible(self) -> bool:
        return self.used[self.tightest] <= 1


def first_wall(costs: Costs, load: Load, machine: Machine) -> tuple[Wall, float]:
    """What is met first when the load grows, and at how many times this load. Below 1, it is too much as it is."""
    fits, does_not = 1e-6, 1e9
    while does_not / fits > 1.0001:
        middle = (fits * does_not) ** 0.5
        if needs(costs, times(load, middle), machine).is_possible:
            fits = middle
        else:
            does_not = middle
    return needs(costs, times(load, fits), machine).tightest, fits


def times(load: Load, factor: float) -> Load:
    """So many times as many tasks and polls."""
    return replace(load, live=load.live * factor, polls=load.polls * factor)


def needs(costs: Costs, load: Load, machine: Machine) -> Needs:
    """What a load needs, and what it meets first."""
    rates = load.rates()
    total = {
        field: sum(rate * getattr(costs.operations[name], field) for name, rate in rates.items())
        for field in ("database", "commits", "notices", "wal")
    }
    serving = sum(rates[name] * costs.operations[name].process for name in SERVED)
    working = sum(rate * costs.operations[name].process for name, rate in rates.items() if name not in SERVED)
    # Every process hears of every change, and has the rest of its core for its own work.
    left = BUSY - costs.idle_process - total["notices"] * costs.heard_process
    running = load.created * load.busy
    servers = _processes(serving, left)
    workers = max(_processes(working, left), _processes(running, machine.concurrency * FILLED))
    telling = total["notices"] * costs.heard_database * max(0, servers + workers - HEARD_BY) if total["notices"] else 0
    cores = (total["database"] + telling + (servers + workers) * costs.idle_database) / BUSY
    ended = load.created * load.kept
    disk = BLOAT * (load.live * costs.live_bytes + ended * costs.kept_bytes)
    # Each notice is a row that was written anew; so is each extension of a lease.
    dead = total["notices"] + running / HEARTBEAT
    between = VACUUM_AT * (load.live + ended) / dead if dead else inf
    vacuumed = BLOAT * (load.live + ended) * costs.vacuumed_bytes
    connections = servers * SERVER_CONNECTIONS + workers * WORKER_CONNECTIONS
    used: dict[Wall, float] = {
        "notices": total["notices"] / machine.syncs,
        "hearing": total["notices"] * costs.heard_process / (BUSY - costs.idle_process),
        "database CPU": cores / machine.cores,
        "disk": disk / machine.disk,
        "vacuum": vacuumed / machine.vacuum / between,
        "connections": connections / machine.connections,
    }
    return Needs(servers, workers, cores, total["commits"], total["notices"], total["wal"], disk, used)


def _processes(needed: float, of_each: float) -> float:
    return max(1, ceil(needed / of_each)) if of_each > 0 else inf
