"""Compute what a load needs from the cost of each operation. Pure arithmetic, which can be checked by hand."""

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Literal, TypeAlias

Operation: TypeAlias = Literal["create", "poll", "run", "step", "answer", "cancel", "prune"]
Wall: TypeAlias = Literal["notices", "hearing", "database CPU", "disk", "vacuum", "connections"]

SERVED: tuple[Operation, ...] = ("create", "poll", "answer", "cancel", "prune")
"""The operations of servers. Workers do the others."""

SERVER_CONNECTIONS = 10
"""Connections of a process: a pool of up to 8, one that listens, one for heartbeats."""

WORKER_CONNECTIONS = 15
"""A worker also has a pool of up to 4, and one more connection that listens."""

HEARD_BY = 3
"""The number of listeners during the measurement. The measured costs include their notifications."""

HEARTBEAT = 5.0
"""Seconds between two extensions of a lease."""

BLOAT = 1.5
"""The size of tables relative to their rows, while vacuum keeps up."""

VACUUM_AT = 0.05
"""The fraction of dead rows in `tasks` that starts a vacuum, as the schema sets it."""

BUSY = 0.6
"""The highest utilization of a core at which requests do not queue."""

FILLED = 0.8
"""The highest utilization of a worker's slots, likewise."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one operation. CPU in seconds."""

    database: float
    process: float
    commits: float
    """Transactions that write."""
    notices: float
    """Transactions that notify other processes."""
    wal: float
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The measured costs."""

    machine: str
    operations: dict[Operation, Cost]
    heard_process: float
    """CPU seconds of a process for each notification of a change by another process."""
    heard_database: float
    """CPU seconds of PostgreSQL for each change and each process that is notified of it."""
    idle_process: float
    """CPU seconds per second of an idle process."""
    idle_database: float
    """CPU seconds per second of PostgreSQL for each idle process."""
    live_bytes: float
    kept_bytes: float
    """Bytes in tables and indexes, of a live task and of an ended one."""
    vacuumed_bytes: float
    """The part of `kept_bytes` in the table that is rewritten with every change."""
    notified_commits: float
    plain_commits: float
    """Commits per second of concurrent small transactions, with and without a notification."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load. Times in seconds."""

    live: float
    polls: float
    lifetime: float = 86_400.0
    """From a task's creation to its end, most of which it waits."""
    busy: float = 5.0
    """The time of it in which the body runs."""
    kept: float = 86_400.0
    """The retention after its end."""
    steps: float = 5.0
    answers: float = 1.0
    cancelled: float = 0.05
    """The fraction of tasks that is cancelled."""

    @property
    def created(self) -> float:
        """Tasks per second."""
        return self.live / self.lifetime

    def rates(self) -> dict[Operation, float]:
        """Operations per second."""
        # A task parks for each answer, and each answer starts another attempt.
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
    """The available PostgreSQL server."""

    cores: float = 16.0
    syncs: float = 1_000.0
    """Notifying commits per second, which run one after the other: a property of its disk."""
    disk: float = 1e12
    connections: float = 500.0
    vacuum: float = 100e6
    """Bytes per second that autovacuum processes at its default cost limit, approximately."""
    concurrency: float = 64
    """Concurrent attempts in a worker."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources that a load needs."""

    servers: float
    workers: float
    """Processes. Infinitely many if notifications leave them no time."""
    cores: float
    commits: float
    notices: float
    wal: float
    """Bytes a second."""
    disk: float
    used: dict[Wall, float]
    """The used fraction of each limit. Above 1, the load is impossible."""

    @property
    def tightest(self) -> Wall:
        return max(self.used, key=lambda wall: self.used[wall])

    @property
    def is_possible(self) -> bool:
        return self.used[self.tightest] <= 1


def first_wall(costs: Costs, load: Load, machine: Machine) -> tuple[Wall, float]:
    """Return the limit that a growing load reaches first, and at which multiple of this load."""
    possible, impossible = 1e-6, 1e9
    while impossible / possible > 1.0001:
        middle = (possible * impossible) ** 0.5
        if needs(costs, times(load, middle), machine).is_possible:
            possible = middle
        else:
            impossible = middle
    return needs(costs, times(load, possible), machine).tightest, possible


def times(load: Load, factor: float) -> Load:
    """Multiply the tasks and polls of a load."""
    return replace(load, live=load.live * factor, polls=load.polls * factor)


def needs(costs: Costs, load: Load, machine: Machine) -> Needs:
    """Compute what a load needs, and how much of each limit it uses."""
    rates = load.rates()
    total = {
        field: sum(rate * getattr(costs.operations[name], field) for name, rate in rates.items())
        for field in ("database", "commits", "notices", "wal")
    }
    serving = sum(rates[name] * costs.operations[name].process for name in SERVED)
    working = sum(rate * costs.operations[name].process for name, rate in rates.items() if name not in SERVED)
    # Every process is notified of every change. The rest of its core is for its own work.
    available = BUSY - costs.idle_process - total["notices"] * costs.heard_process
    running = load.created * load.busy
    servers = _processes(serving, available)
    workers = max(_processes(working, available), _processes(running, machine.concurrency * FILLED))
    notifying = (
        total["notices"] * costs.heard_database * max(0, servers + workers - HEARD_BY) if total["notices"] else 0
    )
    cores = (total["database"] + notifying + (servers + workers) * costs.idle_database) / BUSY
    ended = load.created * load.kept
    disk = BLOAT * (load.live * costs.live_bytes + ended * costs.kept_bytes)
    # Each notice rewrites a row, and so does each extension of a lease.
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


def _processes(needed: float, available: float) -> float:
    return max(1, ceil(needed / available)) if available > 0 else inf
