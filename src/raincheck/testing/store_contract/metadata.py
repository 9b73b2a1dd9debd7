"""Contract for durations, secrets and definitions.

Durations that one process measured are known to all processes, and none is lost. Data signed or hashed with a secret
today is recognised tomorrow, by every handle. The definition that a task started under is stored for as long as the
task lives, even if a newer process saves another.
"""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from raincheck.core.commands import Cancel, Complete
from raincheck.core.histogram import MAX_DURATIONS, MAX_TOOLS, DurationHistogram
from raincheck.core.records import Tool
from raincheck.core.values import NAME_LIMIT, encode
from raincheck.errors import InvalidValue
from raincheck.stores.base import Store
from raincheck.stores.requests import SECRET_BYTES
from raincheck.testing.harness import NAMESPACE, TOOL, StoreHarness
from raincheck.testing.store_contract.base import Handles, StoreContractBase, hinted_during, use_in_thread

OLD, NEW = Tool("release", "1"), Tool("release", "2")


class DefinitionContract(StoreContractBase):
    async def test_definitions_of_live_tasks_are_returned_to_later_callers(self, harness: StoreHarness) -> None:
        assert await harness.store.save_definitions(NAMESPACE, {OLD: b"old"}) == {}
        task = await harness.create_running(tool=OLD)
        assert await harness.store.save_definitions(NAMESPACE, {NEW: b"new"}) == {OLD: b"old"}
        await harness.create(tool=NEW)
        assert await harness.store.save_definitions(NAMESPACE, {}) == {OLD: b"old", NEW: b"new"}
        await harness.apply(task, Complete(1, encode(1)))
        assert await harness.store.save_definitions(NAMESPACE, {}) == {NEW: b"new"}

    async def test_the_latest_definition_of_a_version_is_returned(self, harness: StoreHarness) -> None:
        await harness.store.save_definitions(NAMESPACE, {OLD: b"old"})
        await harness.create(tool=OLD)
        assert await harness.store.save_definitions(NAMESPACE, {OLD: b"other"}) == {OLD: b"other"}
        assert await harness.store.save_definitions(NAMESPACE, {}) == {OLD: b"other"}

    async def test_tools_without_a_definition_are_left_out_and_namespaces_are_separate(
        self, harness: StoreHarness
    ) -> None:
        await harness.create(tool=TOOL)
        await harness.create(tool=OLD)
        assert await harness.store.save_definitions("elsewhere", {OLD: b"elsewhere"}) == {}
        assert await harness.store.save_definitions(NAMESPACE, {}) == {}

    async def test_an_invalid_tool_name_is_rejected(self, harness: StoreHarness) -> None:
        with pytest.raises(InvalidValue):
            await harness.store.save_definitions(NAMESPACE, {Tool("", "1"): b"x"})


NAMES = ["key", "Key", "key ", "kéy", "ke\u0301y", "a/b", "%", "🔑", "k" * NAME_LIMIT]
"""Names that a store could confuse with each other, or change when it stores them."""

BAD_NAMES = {"empty": "", "NUL": "a\0b", "surrogate": "\ud800", "long": "k" * (NAME_LIMIT + 1)}

RACES = 10
"""How often two handles race: a single race might succeed by chance."""


class SecretContract(StoreContractBase):
    async def test_a_secret_never_changes(self, harness: StoreHarness) -> None:
        secret = await harness.store.get_or_create_secret("key")
        assert (type(secret), len(secret)) == (bytes, SECRET_BYTES)
        ended = await harness.apply(await harness.create(), Cancel("alice"))
        later = harness.jump_to_expiry(ended) + timedelta(days=36_500)
        assert await harness.store.prune(now=later, limit=10) == (ended.id,)
        assert await harness.store.get_or_create_secret("key") == secret

    async def test_secrets_of_different_names_differ(self, store: Store) -> None:
        secrets = [await store.get_or_create_secret(name) for name in NAMES]
        assert len(set(secrets)) == len(NAMES)
        assert [await store.get_or_create_secret(name) for name in reversed(NAMES)] == secrets[::-1]

    async def test_secrets_of_one_name_differ_between_stores(self, store: Store, tmp_path: Path) -> None:
        folder = tmp_path / "other"
        await asyncio.to_thread(folder.mkdir)
        async with self.open_store(folder) as other:
            assert await other.get_or_create_secret("key") != await store.get_or_create_secret("key")

    async def test_concurrent_first_reads_of_a_secret_get_the_same(self, store: Store) -> None:
        names = [f"key {number}" for number in range(RACES)]
        first = await asyncio.gather(*(store.get_or_create_secret(name) for name in names * 3))
        again = [await store.get_or_create_secret(name) for name in names]
        assert first == again * 3

    async def test_a_secret_is_the_same_after_reopening(self, tmp_path: Path) -> None:
        self.require(durable=True)
        async with self.open_store(tmp_path) as store:
            secrets = [await store.get_or_create_secret(name) for name in NAMES]
        async with self.open_store(tmp_path) as store:
            assert [await store.get_or_create_secret(name) for name in NAMES] == secrets

    async def test_handles_agree_on_a_secret(self, handles: Handles) -> None:
        one, two = (handle.store for handle in handles)
        assert await one.get_or_create_secret("of one") == await two.get_or_create_secret("of one")
        assert await two.get_or_create_secret("of two") == await one.get_or_create_secret("of two")

    async def test_handles_that_race_for_a_new_secret_get_the_same(self, handles: Handles) -> None:
        one, two = (handle.store for handle in handles)
        for number in range(RACES):
            name = f"key {number}"
            first, second = await asyncio.gather(one.get_or_create_secret(name), two.get_or_create_secret(name))
            assert first == second == await one.get_or_create_secret(name) == await two.get_or_create_secret(name)

    async def test_new_handles_in_other_threads_get_the_same_secret(self, store: Store) -> None:
        self.require(shared=True)

        async def read(handle: Store) -> bytes:
            return await handle.get_or_create_secret("key")

        secret, *others = await asyncio.gather(read(store), *(use_in_thread(store, read) for _ in range(3)))
        assert others == [secret] * 3

    @pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
    async def test_an_invalid_secret_name_is_rejected(self, store: Store, name: str) -> None:
        with pytest.raises(InvalidValue, match="a secret's name"):
            await store.get_or_create_secret(name)

    async def test_creating_a_secret_is_not_reported_by_the_change_feed(self, harness: StoreHarness) -> None:
        assert await hinted_during(harness, harness.store.get_or_create_secret("key")) == set()


QUICK, SLOW = DurationHistogram().with_duration(0.1), DurationHistogram().with_duration(60)
BOTH = QUICK.merged(SLOW)


class DurationContract(StoreContractBase):
    async def test_merged_durations_are_returned_from_then_on(self, store: Store) -> None:
        assert await store.merge_durations(NAMESPACE, {}) == {}
        assert await store.merge_durations(NAMESPACE, {"build": QUICK}) == {"build": QUICK}
        assert await store.merge_durations(NAMESPACE, {}) == {"build": QUICK}

    async def test_new_durations_are_merged_and_all_durations_are_returned(self, store: Store) -> None:
        await store.merge_durations(NAMESPACE, {"build": QUICK, "test": QUICK})
        merged = await store.merge_durations(NAMESPACE, {"build": SLOW, "deploy": BOTH})
        assert merged == {"build": BOTH, "test": QUICK, "deploy": BOTH}
        assert await store.merge_durations(NAMESPACE, {}) == merged

    async def test_returned_durations_are_not_changed_by_later_merges(self, store: Store) -> None:
        before = await store.merge_durations(NAMESPACE, {"build": QUICK})
        await store.merge_durations(NAMESPACE, {"build": SLOW, "test": SLOW})
        assert before == {"build": QUICK}

    async def test_durations_are_separate_per_namespace(self, store: Store) -> None:
        await store.merge_durations(NAMESPACE, {"build": QUICK})
        assert await store.merge_durations("elsewhere", {"build": SLOW}) == {"build": SLOW}
        assert await store.merge_durations("nowhere", {}) == {}
        assert await store.merge_durations(NAMESPACE, {}) == {"build": QUICK}

    async def test_similar_tool_names_are_different_names(self, store: Store) -> None:
        histograms = {name: DurationHistogram({number: 1}) for number, name in enumerate(NAMES)}
        assert await store.merge_durations(NAMESPACE, histograms) == histograms
        for name in NAMES:
            await store.merge_durations(name, {"build": histograms[name]})
        assert [await store.merge_durations(name, {}) for name in NAMES] == [
            {"build": histograms[name]} for name in NAMES
        ]

    async def test_older_durations_fade(self, store: Store) -> None:
        await store.merge_durations(NAMESPACE, {"build": DurationHistogram({10: MAX_DURATIONS - 1, 90: 1})})
        merged = await store.merge_durations(NAMESPACE, {"build": DurationHistogram({20: 9})})
        assert merged == {"build": DurationHistogram({10: (MAX_DURATIONS - 1) // 2, 20: 4})}
        assert await store.merge_durations(NAMESPACE, {}) == merged

    async def test_empty_histograms_are_not_stored(self, store: Store) -> None:
        assert await store.merge_durations(NAMESPACE, {"build": DurationHistogram()}) == {}
        await store.merge_durations(NAMESPACE, {"build": QUICK})
        assert await store.merge_durations(NAMESPACE, {"build": DurationHistogram(), "test": DurationHistogram()}) == {
            "build": QUICK
        }
        assert await store.merge_durations(NAMESPACE, {}) == {"build": QUICK}

    async def test_tool_names_over_the_limit_are_ignored_and_the_others_are_still_merged(self, store: Store) -> None:
        names = [f"tool {number:04}" for number in range(MAX_TOOLS)]
        await store.merge_durations(NAMESPACE, dict.fromkeys(names[1:], QUICK))
        merged = await store.merge_durations(NAMESPACE, dict.fromkeys([names[0], "one too many", names[7]], SLOW))
        assert merged == dict.fromkeys(names, QUICK) | {names[0]: SLOW, names[7]: BOTH}
        assert await store.merge_durations(NAMESPACE, {"another": QUICK}) == merged
        assert await store.merge_durations("elsewhere", {"another": QUICK}) == {"another": QUICK}

    async def test_concurrent_merges_lose_no_durations(self, store: Store) -> None:
        await asyncio.gather(*(store.merge_durations(NAMESPACE, {"build": QUICK, f"{n % 3}": SLOW}) for n in range(30)))
        merged = await store.merge_durations(NAMESPACE, {})
        assert {name: histogram.total for name, histogram in merged.items()} == {"build": 30, "0": 10, "1": 10, "2": 10}

    async def test_handles_merge_their_durations(self, handles: Handles) -> None:
        one, two = (handle.store for handle in handles)
        for _ in range(10):
            quick = one.merge_durations(NAMESPACE, {"build": QUICK})
            await asyncio.gather(quick, two.merge_durations(NAMESPACE, {"build": SLOW}))
        merged = await one.merge_durations(NAMESPACE, {})
        assert merged == await two.merge_durations(NAMESPACE, {})
        assert (merged["build"].total, merged["build"].fraction_within(1)) == (20, 0.5)

    async def test_new_handles_in_other_threads_merge_their_durations(self, store: Store) -> None:
        self.require(shared=True)

        async def merge(handle: Store) -> None:
            await handle.merge_durations(NAMESPACE, {"build": QUICK})

        await asyncio.gather(*(use_in_thread(store, merge) for _ in range(3)))
        assert (await store.merge_durations(NAMESPACE, {}))["build"].total == 3

    @pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
    async def test_invalid_names_are_rejected_and_no_durations_are_merged(self, store: Store, name: str) -> None:
        with pytest.raises(InvalidValue, match="a tool's name"):
            await store.merge_durations(NAMESPACE, {"build": QUICK, name: QUICK})
        for durations in ({}, {"build": QUICK}):
            with pytest.raises(InvalidValue, match="a namespace"):
                await store.merge_durations(name, durations)
        assert await store.merge_durations(NAMESPACE, {}) == {}

    async def test_merged_durations_outlive_the_tasks(self, harness: StoreHarness) -> None:
        await harness.store.merge_durations(NAMESPACE, {"build": QUICK})
        ended = await harness.apply(await harness.create(), Cancel("alice"))
        later = harness.jump_to_expiry(ended) + timedelta(days=36_500)
        assert await harness.store.prune(now=later, limit=10) == (ended.id,)
        assert await harness.store.merge_durations(NAMESPACE, {}) == {"build": QUICK}

    async def test_merging_durations_is_not_reported_by_the_change_feed_and_changes_no_task(
        self, harness: StoreHarness
    ) -> None:
        task = await harness.create_running()
        merge = harness.store.merge_durations(NAMESPACE, {task.tool.name: QUICK})
        assert await hinted_during(harness, merge) == set()
        assert await harness.load(task) == task
