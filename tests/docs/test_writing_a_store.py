"""The toy store of docs/stores/writing-a-store.md passes the whole contract, and stays small."""

import re
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from docs_src.toy_database import Documents, ToyDatabase
from docs_src.toy_store import ToyStore

from raincheck.stores import Complete, Note, Store, encode
from raincheck.testing import (
    CrashPlan,
    FakeClock,
    StoreContract,
    StoreHarness,
    StoreMachine,
    check_invariants,
    enumerate_crashes,
)
from tests.support import ROOT

TOY = ROOT / "docs_src/toy_store.py"

databases: dict[Path, ToyDatabase] = defaultdict(ToyDatabase)


class TestToyStore(StoreContract):
    def make_store(self, folder: Path) -> ToyStore:
        return ToyStore(databases[folder])


class ToyMachine(StoreMachine):
    def make_store(self, folder: Path) -> ToyStore:
        return ToyStore(databases[folder])


TestToyAgreesWithTheModel = ToyMachine.TestCase


def test_transactions_of_the_toy_database_are_exclusive() -> None:
    database = ToyDatabase()
    with database.transaction():
        assert not database.lock.acquire(blocking=False)
    assert database.lock.acquire(blocking=False)


class CrashingDatabase(ToyDatabase):
    def __init__(self, plan: CrashPlan) -> None:
        super().__init__()
        self.plan = plan

    @contextmanager
    def transaction(self) -> Generator[Documents]:
        with super().transaction() as documents:
            yield documents
            self.plan.reach("before the commit")
        self.plan.reach("after the commit")


@pytest.mark.anyio
async def test_the_toy_store_is_consistent_after_a_crash_at_any_point() -> None:
    left: list[ToyDatabase] = []

    async def make_store(plan: CrashPlan) -> Store:
        left.append(CrashingDatabase(plan))
        store = ToyStore(left[-1])
        await store.open()
        return store

    async def scenario(store: Store) -> None:
        harness = StoreHarness(store, FakeClock())
        task = await harness.create_running()
        await harness.apply(task, Note(1, steps=(harness.step("load"),)))
        await harness.apply(task, Complete(1, encode("done")))

    async def check() -> None:
        store = ToyStore(left[-1])
        await store.open()
        await check_invariants(store)
        await store.close()

    points = await enumerate_crashes(make_store, scenario, check)
    assert points == ["before the commit", "after the commit"] * 4


def test_every_piece_of_code_on_the_page_is_in_a_file_that_is_tested() -> None:
    page = (ROOT / "docs/stores/writing-a-store.md").read_text(encoding="utf-8")
    core = (ROOT / f"src/raincheck/{name}.py" for name in ("stores/documents", "core/effects", "core/effects"))
    files = [TOY, TOY.with_name("toy_database.py"), *core, Path(__file__)]
    # Methods are shown without their indentation, and several in one block with an empty line between them.
    code = "".join(line.strip() for file in files for line in file.read_text(encoding="utf-8").splitlines())
    shown = re.findall(r"```python\n(.*?)```|`(Test\w+ = .*?)`", page, re.DOTALL)
    pieces = [piece for block, line in shown for piece in re.split(r"\n+(?=def |async def |@|class )", block or line)]
    assert len(pieces) > 10
    for piece in pieces:
        if piece.startswith("from "):
            continue
        assert "".join(line.strip() for line in piece.splitlines()) in code, piece


def test_the_toy_store_has_the_documented_number_of_lines() -> None:
    lines = len(TOY.read_text(encoding="utf-8").splitlines())
    assert lines < 150
    assert f"in {lines} lines" in (ROOT / "docs/stores/writing-a-store.md").read_text(encoding="utf-8")


def test_the_toy_store_imports_only_public_modules() -> None:
    files = [TOY, TOY.with_name("toy_database.py"), Path(__file__)]
    found = {
        name for file in files for name in re.findall(r"^from (raincheck[\w.]*) import", file.read_text(), re.MULTILINE)
    }
    assert found == {"raincheck", "raincheck.stores", "raincheck.testing"}
