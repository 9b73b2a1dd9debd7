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
from raincheck.core.payload import encode
from raincheck.core.records import Tool
from raincheck.core.validation import NAME_LIMIT
from raincheck.errors import InvalidValue, StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.requests import SECRET_BYTES
from raincheck.testing.harness import NAMESPACE, TOOL, StoreHarness, wait_for_hint
from raincheck.testing.store_contract.base import StoreContractBase

OLD, NEW = Tool("release", "1"), Tool("release", "2")


class DefinitionContract(StoreContractBase):
    async def test_what_live_tasks_began_under_is_given_to_whoever_comes_later(self, scene: StoreHarness) -> None:
        assert await scene.store.save_definitions(NAMESPACE, {OLD: b"old"}) == {}
        task = await scene.create_running(tool=OLD)
        assert await scene.store.save_definitions(NAMESPACE, {NEW: b"new"}) == {OLD: b"old"}
        await scene.create(tool=NEW)
        assert await scene.store.save_definitions(NAMESPACE, {}) == {OLD: b"old", NEW: b"new"}
        await scene.apply(task, Complete(1, encode(1)))
        assert await scene.store.save_definitions(NAMESPACE, {}) == {NEW: b"new"}

    async def test_of_several_definitions_of_one_version_the_latest_counts(self, scene: StoreHarness) -> None:
        await scene.store.save_definitions(NAMESPACE, {OLD: b"old"})
        await scene.create(tool=OLD)
        assert await scene.store.save_definitions(NAMESPACE, {OLD: b"other"}) == {OLD: b"other"}
        assert await scene.store.save_definitions(NAMESPACE, {}) == {OLD: b"other"}

    async def test_tools_that_nothing_is_known_of_are_left_out_and_namespaces_stay_apart(
        self, scene: StoreHarness
    ) -> None:
        await scene.create(tool=TOOL)
        await scene.create(tool=OLD)
        assert await scene.store.save_definitions("elsewhere", {OLD: b"theirs"}) == {}
        assert await scene.store.save_definitions(NAMESPACE, {}) == {}

    async def test_a_name_that_could_not_be_kept_is_refused(self, scene: StoreHarness) -> None:
        with pytest.raises(InvalidValue):
            await scene.store.save_definitions(NAMESPACE, {Tool("", "1"): b"x"})

    async def test_definitions_are_there_after_reopening(self, tmp_path: Path, scene: StoreHarness) -> None:
        self.require(durable=True)
        async with self.open_store(tmp_path) as store:
            await store.save_definitions(NAMESPACE, {OLD: b"old"})
            await StoreHarness(store, scene.clock).create(tool=OLD)
        async with self.open_store(tmp_path) as store:
            assert await store.save_definitions(NAMESPACE, {}) == {OLD: b"old"}


SECRET_NAMES = ["key", "Key", "key ", "kéy", "ke\u0301y", "a/b", "%", "🔑", "k" * NAME_LIMIT]
"""Names that a store could confuse with each other, or change when it stores them."""

RACES = 10
"""How often two handles race: a single race might succeed by chance."""


class SecretContract(StoreContractBase):
    async def test_a_secret_is_the_same_whenever_it_is_asked_for(self, scene: StoreHarness) -> None:
        secret = await scene.store.get_or_create_secret("key")
        assert (type(secret), len(secret)) == (bytes, SECRET_BYTES)
        ended = await scene.apply(await scene.create(), Cancel("alice"))
        assert ended.expires_at is not None
        await scene.store.prune(now=ended.expires_at + timedelta(days=36_500), limit=10)
        assert await scene.store.get_or_create_secret("key") == secret

    async def test_secrets_of_other_names_are_others(self, store: Store) -> None:
        secrets = [await store.get_or_create_secret(name) for name in SECRET_NAMES]
        assert len(set(secrets)) == len(SECRET_NAMES)
        assert [await store.get_or_create_secret(name) for name in reversed(SECRET_NAMES)] == secrets[::-1]

    async def test_secrets_of_one_name_in_other_data_are_others(self, store: Store, tmp_path: Path) -> None:
        folder = tmp_path / "other"
        await asyncio.to_thread(folder.mkdir)
        async with self.open_store(folder) as other:
            assert await other.get_or_create_secret("key") != await store.get_or_create_secret("key")

    async def test_those_who_ask_first_for_a_secret_at_once_get_the_same(self, store: Store) -> None:
        names = [f"key {number}" for number in range(RACES)]
        first = await asyncio.gather(*(store.get_or_create_secret(name) for name in names * 3))
        again = [await store.get_or_create_secret(name) for name in names]
        assert first == again * 3

    async def test_a_secret_is_the_same_after_reopening(self, tmp_path: Path) -> None:
        self.require(durable=True)
        async with self.open_store(tmp_path) as store:
            secrets = [await store.get_or_create_secret(name) for name in SECRET_NAMES]
        async with self.open_store(tmp_path) as store:
            assert [await store.get_or_create_secret(name) for name in SECRET_NAMES] == secrets

    async def test_handles_agree_on_a_secret(self, tmp_path: Path) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as one, self.open_store(tmp_path) as two:
            assert await one.get_or_create_secret("of one") == await two.get_or_create_secret("of one")
            assert await two.get_or_create_secret("of two") == await one.get_or_create_secret("of two")

    async def test_handles_that_ask_first_for_a_secret_at_once_get_the_same(self, tmp_path: Path) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as one, self.open_store(tmp_path) as two:
            for number in range(RACES):
                name = f"key {number}"
                first, second = await asyncio.gather(one.get_or_create_secret(name), two.get_or_create_secret(name))
                assert first == second == await one.get_or_create_secret(name) == await two.get_or_create_secret(name)

    async def test_a_twin_in_a_thread_of_its_own_agrees_on_a_secret(self, tmp_path: Path) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as store:

            async def ask() -> bytes:
                twin = store.new_handle()
                await twin.open()
                try:
                    return await twin.get_or_create_secret("key")
                finally:
                    await twin.close()

            mine, *theirs = await asyncio.gather(
                store.get_or_create_secret("key"), *(asyncio.to_thread(asyncio.run, ask()) for _ in range(3))
            )
            assert theirs == [mine] * 3

    @pytest.mark.parametrize(
        "name", ["", "a\0b", "\ud800", "k" * (NAME_LIMIT + 1)], ids=["empty", "NUL", "surrogate", "long"]
    )
    async def test_a_secret_whose_name_cannot_be_kept_is_refused(self, store: Store, name: str) -> None:
        with pytest.raises(InvalidValue, match="a secret's name"):
            await store.get_or_create_secret(name)

    async def test_a_secret_is_not_news(self, scene: StoreHarness) -> None:
        with scene.store.listen() as feed:
            await scene.store.get_or_create_secret("key")
            last = await scene.create()
            news = await wait_for_hint(feed, last.id)
        assert news == {last.id}

    async def test_a_store_that_is_not_open_has_no_secrets(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        with pytest.raises(StoreUnavailable, match="open it"):
            await store.get_or_create_secret("key")


QUICK, SLOW = DurationHistogram().with_duration(0.1), DurationHistogram().with_duration(60)
BOTH = QUICK.merged(SLOW)

TOOL_NAMES = ["tool", "Tool", "tool ", "tóol", "to\u0301ol", "a/b", "%", "🔧", "t" * NAME_LIMIT]
"""Names that a store could confuse with each other, or change when it stores them."""

BAD_NAMES = {"empty": "", "NUL": "a\0b", "surrogate": "\ud800", "long": "t" * (NAME_LIMIT + 1)}


class DurationContract(StoreContractBase):
    async def test_what_was_learned_is_known_from_then_on(self, store: Store) -> None:
        assert await store.merge_durations(NAMESPACE, {}) == {}
        assert await store.merge_durations(NAMESPACE, {"build": QUICK}) == {"build": QUICK}
        assert await store.merge_durations(NAMESPACE, {}) == {"build": QUICK}

    async def test_news_are_merged_with_what_is_known_and_all_of_it_is_returned(self, store: Store) -> None:
        await store.merge_durations(NAMESPACE, {"build": QUICK, "test": QUICK})
        known = await store.merge_durations(NAMESPACE, {"build": SLOW, "deploy": BOTH})
        assert known == {"build": BOTH, "test": QUICK, "deploy": BOTH}
        assert await store.merge_durations(NAMESPACE, {}) == known

    async def test_what_was_returned_is_not_changed_by_what_is_learned_later(self, store: Store) -> None:
        before = await store.merge_durations(NAMESPACE, {"build": QUICK})
        await store.merge_durations(NAMESPACE, {"build": SLOW, "test": SLOW})
        assert before == {"build": QUICK}

    async def test_each_namespace_learns_for_itself(self, store: Store) -> None:
        await store.merge_durations(NAMESPACE, {"build": QUICK})
        assert await store.merge_durations("elsewhere", {"build": SLOW}) == {"build": SLOW}
        assert await store.merge_durations("nowhere", {}) == {}
        assert await store.merge_durations(NAMESPACE, {}) == {"build": QUICK}

    async def test_names_that_look_alike_are_others(self, store: Store) -> None:
        sketches = {name: DurationHistogram({number: 1}) for number, name in enumerate(TOOL_NAMES)}
        assert await store.merge_durations(NAMESPACE, sketches) == sketches
        for name in TOOL_NAMES:
            await store.merge_durations(name, {"build": sketches[name]})
        assert [await store.merge_durations(name, {}) for name in TOOL_NAMES] == [
            {"build": sketches[name]} for name in TOOL_NAMES
        ]

    async def test_what_is_older_fades(self, store: Store) -> None:
        await store.merge_durations(NAMESPACE, {"build": DurationHistogram({10: MAX_DURATIONS - 1, 90: 1})})
        known = await store.merge_durations(NAMESPACE, {"build": DurationHistogram({20: 9})})
        assert known == {"build": DurationHistogram({10: (MAX_DURATIONS - 1) // 2, 20: 4})}
        assert await store.merge_durations(NAMESPACE, {}) == known

    async def test_where_nothing_was_measured_nothing_is_learned(self, store: Store) -> None:
        assert await store.merge_durations(NAMESPACE, {"build": DurationHistogram()}) == {}
        await store.merge_durations(NAMESPACE, {"build": QUICK})
        assert await store.merge_durations(NAMESPACE, {"build": DurationHistogram(), "test": DurationHistogram()}) == {
            "build": QUICK
        }
        assert await store.merge_durations(NAMESPACE, {}) == {"build": QUICK}

    async def test_names_beyond_the_bound_are_left_out_and_the_others_go_on_learning(self, store: Store) -> None:
        names = [f"tool {number:04}" for number in range(MAX_TOOLS)]
        await store.merge_durations(NAMESPACE, dict.fromkeys(names[1:], QUICK))
        known = await store.merge_durations(NAMESPACE, dict.fromkeys([names[0], "one too many", names[7]], SLOW))
        assert known == dict.fromkeys(names, QUICK) | {names[0]: SLOW, names[7]: BOTH}
        assert await store.merge_durations(NAMESPACE, {"another": QUICK}) == known
        assert await store.merge_durations("elsewhere", {"another": QUICK}) == {"another": QUICK}

    async def test_of_those_who_learn_at_once_nobodys_news_are_lost(self, store: Store) -> None:
        await asyncio.gather(*(store.merge_durations(NAMESPACE, {"build": QUICK, f"{n % 3}": SLOW}) for n in range(30)))
        known = await store.merge_durations(NAMESPACE, {})
        assert {name: sketch.total for name, sketch in known.items()} == {"build": 30, "0": 10, "1": 10, "2": 10}

    async def test_what_was_learned_is_known_after_reopening(self, tmp_path: Path) -> None:
        self.require(durable=True)
        async with self.open_store(tmp_path) as store:
            known = await store.merge_durations(NAMESPACE, {"build": BOTH, "test": SLOW})
        async with self.open_store(tmp_path) as store:
            assert await store.merge_durations(NAMESPACE, {}) == known

    async def test_handles_learn_together(self, tmp_path: Path) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as one, self.open_store(tmp_path) as two:
            for _ in range(10):
                await asyncio.gather(
                    one.merge_durations(NAMESPACE, {"build": QUICK}), two.merge_durations(NAMESPACE, {"build": SLOW})
                )
            known = await one.merge_durations(NAMESPACE, {})
            assert known == await two.merge_durations(NAMESPACE, {})
            assert (known["build"].total, known["build"].fraction_within(1)) == (20, 0.5)

    async def test_a_twin_in_a_thread_of_its_own_learns_with_the_others(self, tmp_path: Path) -> None:
        self.require(shared=True)
        async with self.open_store(tmp_path) as store:

            async def learn() -> None:
                twin = store.new_handle()
                await twin.open()
                try:
                    await twin.merge_durations(NAMESPACE, {"build": QUICK})
                finally:
                    await twin.close()

            await asyncio.gather(*(asyncio.to_thread(asyncio.run, learn()) for _ in range(3)))
            assert (await store.merge_durations(NAMESPACE, {}))["build"].total == 3

    @pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
    async def test_what_cannot_be_kept_is_refused_and_nothing_is_learned(self, store: Store, name: str) -> None:
        with pytest.raises(InvalidValue, match="a tool's name"):
            await store.merge_durations(NAMESPACE, {"build": QUICK, name: QUICK})
        for news in ({}, {"build": QUICK}):
            with pytest.raises(InvalidValue, match="a namespace"):
                await store.merge_durations(name, news)
        assert await store.merge_durations(NAMESPACE, {}) == {}

    async def test_what_was_learned_outlives_the_tasks(self, scene: StoreHarness) -> None:
        await scene.store.merge_durations(NAMESPACE, {"build": QUICK})
        ended = await scene.apply(await scene.create(), Cancel("alice"))
        assert ended.expires_at is not None
        await scene.store.prune(now=ended.expires_at + timedelta(days=36_500), limit=10)
        assert await scene.store.merge_durations(NAMESPACE, {}) == {"build": QUICK}

    async def test_what_is_learned_is_not_news_and_changes_no_task(self, scene: StoreHarness) -> None:
        task = await scene.create_running()
        with scene.store.listen() as feed:
            await scene.store.merge_durations(NAMESPACE, {task.tool.name: QUICK})
            last = await scene.create()
            news = await wait_for_hint(feed, last.id)
        assert news == {last.id}
        assert await scene.load(task) == task

    async def test_a_store_that_is_not_open_learns_nothing(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for news in ({}, {"build": QUICK}):
            with pytest.raises(StoreUnavailable, match="open it"):
                await store.merge_durations(NAMESPACE, news)
