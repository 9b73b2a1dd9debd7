"""`bench.wire`: every server answers the client, and the figures measure what they name."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from bench.progress import Progress
from bench.wire import delays, measure, rates, startup, stored_tasks
from bench.wire.aims import aim
from bench.wire.client_process import Client, client
from bench.wire.orders import Order, OrderResult
from bench.wire.peers import known_names, peers
from bench.wire.server import nap
from bench.wire.server_group import server_group
from bench.wire.servers import PLAIN_2025, SDK, RunningServer, own_servers, plain_servers

pytestmark = pytest.mark.anyio

EXTENT = replace(rates.FULL, rounds=1, seconds=0.05, at_once=20, operations={16: rates.FULL.operations[16]})
KNOWN = delays.Extent(told=2, polled=2, seconds=0.2)
PLAIN = frozenset({"floor", SDK, PLAIN_2025})
OURS = frozenset({"memory", "SQLite FULL", "SQLite FULL, 2025", "PostgreSQL", "PostgreSQL, 1 w"})
NOT_ASKED = {
    *(("SQLite FULL, 2025", f"{operation} x16") for operation in ("get working", "cancel", "update", "all done")),
    *(("PostgreSQL, 1 w", f"{operation} x16") for operation in ("get working", "cancel", "update")),
}
"""Of those that differ from another in one thing."""


@asynccontextmanager
async def up(folder: Path, *names: str) -> AsyncGenerator[list[RunningServer]]:
    async with server_group(folder / "up", frozenset(names), Progress()) as servers:
        assert {one.server.name for one in servers} == set(names)
        yield servers


async def test_every_operation_is_measured_on_our_servers_in_both_generations(tmp_path: Path) -> None:
    async with up(tmp_path, *PLAIN, *OURS) as servers, client() as asking:
        figures = await rates.measure(asking, servers, EXTENT, Progress())
    assert {(one.server, one.name) for one in figures} == {
        *((name, "call x16") for name in PLAIN),
        *((name, f"{operation} x16") for name in OURS for operation in EXTENT.operations[16]),
    } - NOT_ASKED
    assert all(min(*one.measured, *(one.against or ())) > 0 for one in figures)


class Recorder(Client):
    """Does nothing, and remembers what it was told to do."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    async def do(self, order: Order) -> OrderResult:
        self.orders.append(order)
        return OrderResult(order.port, 1.0)


def pretended(*names: str) -> list[RunningServer]:
    found = {one.name: one for one in (*plain_servers(), *own_servers(Path(), {1: "", 3: ""}))}
    return [RunningServer(found[name], port, pid=0) for port, name in enumerate(names, 1)]


async def test_each_server_is_warmed_up_and_then_alternates_with_the_plain_call() -> None:
    recorder = Recorder()
    extent = replace(rates.FULL, rounds=2, operations={16: ("get",)})
    figures = await rates.measure(recorder, pretended(SDK, "memory"), extent, Progress())
    plain, ours = ("call", 1), ("get", 2)
    assert [(one.operation, one.port) for one in recorder.orders] == [
        plain,
        ("create", 2),
        plain,
        plain,
        *(plain, ours) * 2,
    ]
    assert [(one.title, one.measured, one.against) for one in figures] == [
        (f"call x16, {SDK}", [1, 1], [1, 1]),
        ("get x16, memory", [2, 2], [1, 1]),
    ]


def test_servers_that_differ_in_one_thing_get_only_the_affected_operations() -> None:
    (three,) = (one.server for one in pretended("PostgreSQL, 3 w"))
    assert rates.is_measured(three, "all done", 16)
    assert not rates.is_measured(three, "cancel", 16)
    assert not rates.is_measured(three, "get", 64)


async def test_polls_among_many_and_among_few_go_to_different_servers() -> None:
    recorder = Recorder()
    few, many = pretended("SQLite FULL", "SQLite FULL")
    measured = await stored_tasks.measure(
        [few], [many], stored_tasks.Extent(100, live=5, rounds=2, seconds=1), Progress(), recorder
    )
    assert measured[-1].measured == [many.port] * 2
    assert measured[-1].against == [few.port] * 2
    kinds = [(one.operation, one.port, one.count) for one in recorder.orders if one.operation != "get"]
    assert kinds == [
        ("fill", few.port, stored_tasks.FEW),
        ("fill", many.port, 50),
        ("fill", many.port, 50),
        ("leave", few.port, 5),
    ]


async def test_a_nap_reports_when_it_ended() -> None:
    begun = time.time()  # noqa: TID251 - what it is compared with
    assert float(await nap(0.05)) >= begun + 0.05


async def test_peers_get_the_same_requests(tmp_path: Path) -> None:
    found, missing = peers(None)
    assert [line.partition(":")[0] for line in missing] == ["FastMCP 4, Redis"], "scripts/setup makes the others"
    theirs = {server.name for server in found}
    async with up(tmp_path, SDK, *theirs) as servers:
        async with client() as asking:
            figures = await rates.measure(asking, servers, EXTENT, Progress())
        known = await delays.measure(servers, KNOWN, Progress())
    assert {one.server for one in figures} == {SDK, *theirs}
    assert all(min(*one.measured, *(one.against or ())) > 0 for one in figures)
    # None of them tells its callers by itself.
    assert {(one.name, one.server) for one in known} == {("polled", "FastMCP 4, memory"), ("polled", "mcp 1.x tasks")}


async def test_the_delay_until_a_caller_knows_starts_at_the_end_that_the_task_recorded(tmp_path: Path) -> None:
    async with up(tmp_path, *OURS) as servers:
        figures = await delays.measure(servers, KNOWN, Progress())
    assert {(one.name, one.server) for one in figures} == {
        *(("told", name) for name in OURS - {"SQLite FULL, 2025"}),
        *(("polled", name) for name in OURS),
    }
    assert all(len(one.measured) == 2 and min(one.measured) > 0 for one in figures)
    by_polls = [one for one in figures if one.name == "polled"]
    assert all(sorted(one.against or ()) == pytest.approx([1 / 6, 7 / 30]) for one in by_polls)


async def test_the_cost_of_many_tasks_is_measured_against_a_server_with_few(tmp_path: Path) -> None:
    extent = stored_tasks.Extent(finished=100, live=20, rounds=1, seconds=0.05)
    async with (
        server_group(tmp_path / "few", frozenset({"SQLite FULL"}), Progress()) as few,
        server_group(tmp_path / "many", frozenset({"SQLite FULL"}), Progress()) as many,
        client() as asking,
    ):
        figures = await stored_tasks.measure(few, many, extent, Progress(), asking)
    assert [one.name for one in figures] == ["memory, finished", "memory, live", "get among many"]
    assert figures[-1].value > 0


@pytest.mark.cold
async def test_a_start_lasts_until_the_first_answer(tmp_path: Path) -> None:
    async with up(tmp_path, SDK, "SQLite FULL") as servers:
        known = [one.server for one in servers]
    figures = await startup.measure(known, rounds=1, progress=Progress())
    assert [(one.name, one.server) for one in figures] == [("start", SDK), ("start", "SQLite FULL")]
    assert figures[0].value == 1
    # Nothing that imports the SDK answers sooner: the clock ran from the beginning.
    assert min(figures[0].measured) > 0.1
    package, tasks = await startup.measure_import(rounds=1, progress=Progress())
    assert 0 < package.value < tasks.value


def test_every_server_that_the_tables_name_exists() -> None:
    names = set(known_names())
    assert measure.QUICK.servers is not None
    assert names > (
        measure.QUICK.servers | measure.STARTED | set(stored_tasks.MANY) | delays.PUSHES | set(rates.VARIANTS)
    )
    operations = {f"{one} x{callers}" for callers, some in rates.FULL.operations.items() for one in some}
    others = {"told", "polled", "memory, finished", "memory, live", "get among many"}
    aimed = {name for name in operations | others if aim(name, "SQLite FULL")}
    assert aimed == {name for name in operations | others if aim(name, "PostgreSQL")}
    assert len(aimed) == 8
