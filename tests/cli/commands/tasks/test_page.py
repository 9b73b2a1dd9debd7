"""Tests that the output on docs/howto/operate-a-store.md is what its commands print."""

import re
import shlex
import shutil
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from raincheck.cli.app import program
from raincheck.core.commands import Complete, Fail, Note, Park
from raincheck.core.histogram import DurationHistogram
from raincheck.core.owner import Owner
from raincheck.core.records import InputKind, InputRequest, Progress, TaskId, Tool
from raincheck.core.values import encode
from raincheck.stores.requests import HeldAttempt
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import ALICE, BOB
from tests.support import ROOT
from tests.support.cli.operator import LONG, START, in_store

PAGE = (ROOT / "docs/howto/operate-a-store.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, re.DOTALL)
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "reports.py", line 31, in build_report\n'
    "    output.write(page)\n"
    "OSError: [Errno 28] No space left on device"
)


class Usage(NamedTuple):
    """What `shutil.disk_usage` says."""

    total: int
    used: int
    free: int


def id_at(harness: StoreHarness, ending: str) -> TaskId:
    return TaskId(f"{int(harness.clock.now().timestamp() * 1_000):012x}{ending:0<32}")


async def two_hours(harness: StoreHarness) -> None:
    """What has happened when the page begins."""
    clock, store = harness.clock, harness.store
    task = await harness.create_running(id=id_at(harness, "5f3a90c2"), retention=LONG)
    clock.advance(71)
    await harness.apply(task, Complete(1, encode({"content": [{"type": "text", "text": "the report of 2026"}]})))
    clock.jump_to(START + timedelta(minutes=20))
    task = await harness.create_running(id=id_at(harness, "b81d04e7"), owner=BOB, retention=LONG)
    clock.advance(38)
    await harness.apply(task, Note(1, steps=(harness.step("load", result={"rows": 12}),)))
    clock.advance(4)
    error, detail = (
        encode({"code": -32603, "message": "internal error"}),
        encode({"error_id": "6f81c2aa", "type": "OSError", "traceback": TRACEBACK}),
    )
    await harness.apply(task, Fail(1, error, "the disk is full", retryable=False, detail=detail))
    clock.jump_to(START + timedelta(minutes=90))
    task = await harness.create_running(id=id_at(harness, "20cc71ab"), tool=Tool("deploy"), owner=Owner.local())
    question = InputRequest("approve", InputKind.ELICITATION, encode({"message": "Go live?"}), clock.now(), 1)
    await harness.apply(task, Note(1, input_requests=(question,)))
    await harness.apply(task, Park(1, seen_signals=0))
    clock.jump_to(START + timedelta(minutes=118))
    task = await harness.create_running(id=id_at(harness, "e4f2d619"), owner=ALICE)
    await harness.apply(task, Note(1, progress=Progress(3, 12), status_message="crunching"))
    clock.jump_to(START + timedelta(hours=2))
    await store.extend_leases([HeldAttempt(task.id, 1)], until=clock.now() + timedelta(seconds=20))
    clock.advance(-90)
    await harness.create(id=id_at(harness, "0b96a3f5"), tool=Tool("convert", "2"), owner=ALICE)
    clock.advance(90)
    build = DurationHistogram().with_durations([40.0] * 12 + [70.0] * 60 + [100.0] * 30 + [400.0] * 4)
    await store.merge_durations(
        "reports", {"build_report": build, "deploy": DurationHistogram().with_durations([300.0] * 5 + [900.0] * 3)}
    )


def test_there_are_commands_on_the_page() -> None:
    assert len(BLOCKS) > 8
    assert sum(bool(output) for _, output in BLOCKS) > 6


def printed_by(block: str, clock: FakeClock) -> list[str]:
    """What the commands of a block print, each of which must do what it says."""
    printed: list[str] = []
    for line in block.splitlines():
        if not line.startswith("raincheck "):
            continue
        # What a shell would do with it is not ours.
        words = shlex.split(re.split(r" (?:>|&&|\|) ", line)[0])[1:]
        done = CliRunner().invoke(program, words, obj=clock)
        assert done.exit_code == 0, done.output
        if " > " not in line and " && " not in line:
            printed += done.stdout.replace(str(Path.cwd()), "/srv/reports").splitlines()
    return [line.rstrip() for line in printed]


@pytest.mark.usefixtures("folder")
def test_the_output_on_the_page_is_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(START)
    in_store(two_hours, clock)
    monkeypatch.setenv("RAINCHECK_STORE", "tasks.db")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 48 * 1_024**3))  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType] - a stand-in
    new = f"{int(clock.now().timestamp() * 1_000):012x}" + "7d15c8e0".ljust(32, "0")
    monkeypatch.setattr("raincheck.cli.commands.tasks.control.new_task_id", lambda _: TaskId(new))  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType] - likewise
    for block, output in BLOCKS:
        printed = printed_by(block, clock)
        if output:
            assert printed == output.splitlines(), block
