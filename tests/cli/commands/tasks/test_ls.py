"""Tests for `raincheck tasks ls`: which tasks it lists, and how."""

import re

import pytest
from rich.console import Console

from raincheck.cli.commands.tasks.ls import task_table
from raincheck.clock import new_task_id
from raincheck.core.commands import Fail, Note, Release
from raincheck.core.lifecycle import TERMINAL_PHASES, Phase, Status
from raincheck.core.owner import Owner
from raincheck.core.records import Progress, Task, Tool
from raincheck.core.values import encode
from raincheck.operations.select import EndStatusChoice, StatusChoice
from raincheck.testing import FakeClock, StoreHarness
from tests.support.cli.operator import START, create_task_in_each_phase, in_store, lines, run, run_json

pytestmark = pytest.mark.usefixtures("folder")


def listed(*words: str, clock: FakeClock | None = None) -> list[str]:
    return [task["id"] for task in run_json("tasks", "ls", *words, clock=clock)]


def test_status_choices_are_the_wire_statuses_and_the_phases() -> None:
    assert set(StatusChoice) == set(Status) | set(Phase)
    assert set(EndStatusChoice) == TERMINAL_PHASES


def test_tasks_are_listed_newest_first() -> None:
    clock = FakeClock(START)
    in_store(create_task_in_each_phase, clock)
    clock.advance(60)
    assert lines("tasks", "ls", clock=clock) == [
        "id tool status age attempt progress",
        "task-0008 build_report queued 60 s 0",
        "task-0007 build_report paused 2 min 0",
        "task-0006 build_report running 3 min 1",
        "task-0005 build_report parked 4 min 1",
        "task-0004 build_report cancelled 5 min 1 no longer needed",
        "task-0003 build_report failed 6 min 1 it went boom",
        "task-0002 build_report completed 7 min 1 ended with an error",
        "task-0001 build_report completed 8 min 1",
    ]


def test_tasks_of_all_servers_are_listed_with_their_owners() -> None:
    async def work(harness: StoreHarness) -> None:
        await harness.create()
        await harness.create(owner=Owner.anonymous(), namespace="others", tool=Tool("deploy", "2"))
        await harness.create(owner=Owner.local())

    in_store(work)
    assert lines("tasks", "ls") == [
        "id namespace owner tool status age attempt progress",
        "task-0003 reports local build_report queued 0 ms 0",
        "task-0002 others anonymous deploy v2 queued 0 ms 0",
        "task-0001 reports alice build_report queued 0 ms 0",
    ]


def test_progress_and_status_messages_are_shown() -> None:
    async def work(harness: StoreHarness) -> None:
        task = await harness.create_running()
        await harness.apply(task, Note(1, progress=Progress(3, 12), status_message="crunching"))
        task = await harness.create_running()
        await harness.apply(task, Note(1, progress=Progress(3.5), input_requests=(harness.input_request("publish"),)))

    in_store(work)
    assert lines("tasks", "ls")[1:] == [
        "task-0002 build_report input_required 0 ms 1 3.5",
        "task-0001 build_report running 0 ms 1 3 of 12, crunching",
    ]


def test_without_a_terminal_each_task_is_one_line() -> None:
    long = " ".join(["there is no room"] * 7)

    async def work(harness: StoreHarness) -> None:
        for owner in (Owner.local(), Owner.token("issuer", "somebody-" * 9)):
            task = await harness.create_running(owner=owner, tool=Tool("tool-" * 12))
            await harness.apply(task, Fail(1, encode(1), long, retryable=False))

    in_store(work)
    header, *rows = lines("tasks", "ls")
    assert header.startswith("id owner tool")
    assert len(rows) == 2
    assert all(row.endswith(long) for row in rows)


def test_status_messages_are_escaped() -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J\u202eevil\r\n[red]markup[/red]\x9b31m"

    async def work(harness: StoreHarness) -> None:
        task = await harness.create_running(
            tool=Tool("t\x1b[31m"), namespace="reports", owner=Owner.token("i\x1b[1m", "[b]bob")
        )
        await harness.apply(task, Note(1, status_message=nasty, steps=(harness.step("s\x1b[5m", result="\x1b[6m"),)))
        await harness.create()

    in_store(work)
    for words in (["ls"], ["show", "task-0001"], ["show", "task-0001", "--full"], ["cancel", "task-0001"]):
        printed = run("tasks", *words).output
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", printed), words
        if "cancel" not in words:
            assert "[red]markup[/red]" in printed
            assert "\\x1b[2J\\u202eevil" in printed


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--status", "failed"], {"failed"}),
        (["--status", "failed", "--status", "cancelled"], {"failed", "cancelled"}),
        (["--status", "working"], {"queued", "running", "parked", "paused"}),
        (["--status", "parked"], {"parked"}),
        (["--status", "completed"], {"completed", "error"}),
        (["--errors"], {"error", "failed"}),
        (["--errors", "--status", "completed"], {"error"}),
        (["--status", "input_required"], set[str]()),
    ],
)
def test_ls_filters_by_status(words: list[str], found: set[str]) -> None:
    tasks = in_store(create_task_in_each_phase)
    assert set(listed(*words)) == {tasks[name].id for name in found}


def test_input_required_matches_tasks_in_any_phase() -> None:
    async def work(harness: StoreHarness) -> None:
        await harness.apply(await harness.create_running(), Note(1, input_requests=(harness.input_request("publish"),)))
        await harness.create_running()

    in_store(work)
    assert listed("--status", "input_required") == ["task-0001"]
    assert listed("--status", "working") == ["task-0002"]


async def of_several(harness: StoreHarness) -> None:
    await harness.create(owner=Owner.token("https://a.example", "ann"), namespace="one")
    await harness.create(owner=Owner.token("https://b.example", "ann"), namespace="two", tool=Tool("deploy"))
    await harness.create(owner=Owner.local(), namespace="two")
    await harness.create(owner=Owner.anonymous(), namespace="two")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--namespace", "one"], [1]),
        (["--namespace", "nowhere"], []),
        (["--tool", "deploy"], [2]),
        (["--owner", "ann"], [2, 1]),
        (["--owner", "https://b.example"], [2]),
        (["--owner", "token https://a.example ann"], [1]),
        (["--owner", '["token", "https://a.example", "ann"]'], [1]),
        (["--owner", "local"], [3]),
        (["--owner", "anonymous"], [4]),
        (["--owner", "an"], []),
        (["--owner", "ann", "--namespace", "two", "--tool", "deploy", "--status", "queued"], [2]),
    ],
)
def test_ls_filters_by_server_owner_and_tool(words: list[str], found: list[int]) -> None:
    in_store(of_several)
    assert listed(*words) == [f"task-{number:04}" for number in found]
    if not found:
        assert lines("tasks", "ls", *words) == ["no matching tasks"]


def test_a_limit_shows_the_newest_and_reports_that_there_are_more() -> None:
    in_store(create_task_in_each_phase)
    assert listed("--limit", "2") == ["task-0008", "task-0007"]
    assert lines("tasks", "ls", "--limit", "2")[-1] == "only the newest 2 are shown: increase --limit to see more"
    assert lines("tasks", "ls", "--limit", "8")[-1].startswith("task-0001")
    assert run("tasks", "ls", "--limit", "0").exit_code == 2


def test_a_limit_counts_matching_tasks_only() -> None:
    async def work(harness: StoreHarness) -> None:
        await harness.create(owner=Owner.local())
        for _ in range(7):
            await harness.create()

    in_store(work)
    assert listed("--owner", "local", "--limit", "1") == ["task-0001"]


def test_a_task_fits_in_eighty_columns() -> None:
    async def work(harness: StoreHarness) -> list[Task]:
        ours = await harness.create_running(id=new_task_id(START), tool=Tool("a_rather_long_name_of_a_tool", "2"))
        ours = await harness.apply(
            ours, Note(1, progress=Progress(3, 12), input_requests=(harness.input_request("publish"),))
        )
        theirs = await harness.create_running(
            id=new_task_id(START), owner=Owner.client("a-client-of-theirs"), namespace="reports"
        )
        await harness.apply(theirs, Release(1))
        (theirs,) = await harness.claim()
        return [ours, theirs]

    tasks = in_store(work)
    terminal = Console(width=80, color_system=None, force_terminal=True)
    with terminal.capture() as captured:
        terminal.print(task_table(tasks, START, terminal.width))
    assert [line.rstrip() for line in captured.get().splitlines()] == [
        "id                owner       tool            status          age   progress",
        f"{tasks[0].id[:16]}  alice       a_rather_long…  input_required  0 ms  3 of 12",
        f"{tasks[1].id[:16]}  a-client-…  build_report    running         0 ms  attempt 2",
    ]


def test_an_empty_store_has_no_tasks() -> None:
    async def nothing(_: StoreHarness) -> None: ...

    in_store(nothing)
    assert lines("tasks", "ls") == ["no tasks"]
    assert run_json("tasks", "ls") == []


def test_expired_tasks_are_not_listed() -> None:
    tasks = in_store(create_task_in_each_phase)
    clock = FakeClock(START)
    clock.advance(401 * 86_400)
    assert set(listed(clock=clock)) == {tasks[name].id for name in ("parked", "running", "paused", "queued")}


def test_json_has_stable_names() -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> Task:
        task = await harness.create_running(deadline_at=harness.clock.now().replace(hour=5))
        return await harness.apply(task, Note(1, progress=Progress(1, 2), status_message="going"))

    in_store(work, clock)
    assert run_json("tasks", "ls") == [
        {
            "id": "task-0001",
            "namespace": "reports",
            "owner": ["token", "https://issuer.example", "alice"],
            "tool": "build_report",
            "tool_version": "1",
            "status": "working",
            "phase": "running",
            "status_message": "going",
            "state": None,
            "state_since": None,
            "subject": None,
            "is_error": False,
            "progress": {"done": 1.0, "total": 2.0},
            "attempt": 1,
            "failures": 0,
            "running": {
                "holder": "worker-1",
                "started_at": "2026-01-01T00:00:00.000000Z",
                "lease_expires_at": "2026-01-01T00:00:30.000000Z",
            },
            "pausing": False,
            "open_inputs": 0,
            "priority": 0,
            "parent_id": None,
            "idempotency_key": None,
            "created_at": "2026-01-01T00:00:00.000000Z",
            "updated_at": "2026-01-01T00:00:00.000000Z",
            "due_at": None,
            "deadline_at": "2026-01-01T05:00:00.000000Z",
            "finished_at": None,
            "expires_at": None,
        }
    ]
