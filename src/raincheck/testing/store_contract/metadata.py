"""Learning how long tasks take: what one process measured, all of them know, and nothing of it is lost.

Secrets: what is signed or hashed with one today is recognised tomorrow, and by every handle.

Definitions: what a task began under is there for as long as it lives, whoever comes later.
"""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from raincheck.core.commands import Cancel, Complete
from raincheck.core.histogram import MOST, MOST_TOOLS, Sketch
from raincheck.core.payload import encode
from raincheck.core.records import Tool
from raincheck.core.validation import NAME_LIMIT
from raincheck.errors import InvalidValue, StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.requests import SECRET_SIZE
from raincheck.testing.harness import NAMESPACE, TOOL, Scene, hear_until
from raincheck.testing.store_contract.base import ContractBase

OLD, NEW = Tool("release", "1"), Tool("release", "2")


class RememberingContract(ContractBase):
    async def test_what_live_tasks_began_under_is_given_to_whoever_comes_later(self, scene: Scene) -> None:
        assert await scene.store.remember(NAMESPACE, {OLD: b"old"}) == {}
        task = await scene.begin(tool=OLD)
        assert await scene.store.remember(NAMESPACE, {NEW: b"new"}) == {OLD: b"old"}
        await scene.create(tool=NEW)
        assert await scene.store.remember(NAMESPACE, {}) == {OLD: b"old", NEW: b"new"}
        await scene.do(task, Complete(1, encode(1)))
        assert await scene.store.remember(NAMESPACE, {}) == {NEW: b"new"}

    async def test_of_several_definitions_of_one_version_the_latest_counts(self, scene: Scene) -> None:
        await scene.store.remember(NAMESPACE, {OLD: b"old"})
        await scene.create(tool=OLD)
        assert await scene.store.remember(NAMESPACE, {OLD: b"other"}) == {OLD: b"other"}
        assert await scene.store.remember(NAMESPACE, {}) == {OLD: b"other"}

    async def test_tools_that_nothing_is_known_of_are_left_out_and_namespaces_stay_apart(self, scene: Scene) -> None:
        await scene.create(tool=TOOL)
        await scene.create(tool=OLD)
        assert await scene.store.remember("elsewhere", {OLD: b"theirs"}) == {}
        assert await scene.store.remember(NAMESPACE, {}) == {}

    async def test_a_name_that_could_not_be_kept_is_refused(self, scene: Scene) -> None:
        with pytest.raises(InvalidValue):
            await scene.store.remember(NAMESPACE, {Tool("", "1"): b"x"})

    async def test_definitions_are_there_after_reopening(self, tmp_path: Path, scene: Scene) -> None:
        self.need(durable=True)
        async with self.opened(tmp_path) as store:
            await store.remember(NAMESPACE, {OLD: b"old"})
            await Scene(store, scene.clock).create(tool=OLD)
        async with self.opened(tmp_path) as store:
            assert await store.remember(NAMESPACE, {}) == {OLD: b"old"}


SECRET_NAMES = ["key", "Key", "key ", "kéy", "ke\u0301y", "a/b", "%", "🔑", "k" * NAME_LIMIT]
"""Names that are easily taken for each other, or not kept as they are."""

RACES = 10
"""How often two handles race: once might go well by chance."""


class SigningContract(ContractBase):
    async def test_a_secret_is_the_same_whenever_it_is_asked_for(self, scene: Scene) -> None:
        secret = await scene.store.secret("key")
        assert (type(secret), len(secret)) == (bytes, SECRET_SIZE)
        ended = await scene.do(await scene.create(), Cancel("alice"))
        assert ended.expires_at is not None
        await scene.store.prune(now=ended.expires_at + timedelta(days=36_500), limit=10)
        assert await scene.store.secret("key") == secret

    async def test_secrets_of_other_names_are_others(self, store: Store) -> None:
        secrets = [await store.secret(name) for name in SECRET_NAMES]
        assert len(set(secrets)) == len(SECRET_NAMES)
        assert [await store.secret(name) for name in reversed(SECRET_NAMES)] == secrets[::-1]

    async def test_secrets_of_one_name_in_other_data_are_others(self, store: Store, tmp_path: Path) -> None:
        folder = tmp_path / "other"
        await asyncio.to_thread(folder.mkdir)
        async with self.opened(folder) as other:
            assert await other.secret("key") != await store.secret("key")

    async def test_those_who_ask_first_for_a_secret_at_once_get_the_same(self, store: Store) -> None:
        names = [f"key {number}" for number in range(RACES)]
        first = await asyncio.gather(*(store.secret(name) for name in names * 3))
        again = [await store.secret(name) for name in names]
        assert first == again * 3

    async def test_a_secret_is_the_same_after_reopening(self, tmp_path: Path) -> None:
        self.need(durable=True)
        async with self.opened(tmp_path) as store:
            secrets = [await store.secret(name) for name in SECRET_NAMES]
        async with self.opened(tmp_path) as store:
            assert [await store.secret(name) for name in SECRET_NAMES] == secrets

    async def test_handles_agree_on_a_secret(self, tmp_path: Path) -> None:
        self.need(shared=True)
        async with self.opened(tmp_path) as one, self.opened(tmp_path) as two:
            assert await one.secret("of one") == await two.secret("of one")
            assert await two.secret("of two") == await one.secret("of two")

    async def test_handles_that_ask_first_for_a_secret_at_once_get_the_same(self, tmp_path: Path) -> None:
        self.need(shared=True)
        async with self.opened(tmp_path) as one, self.opened(tmp_path) as two:
            for number in range(RACES):
                name = f"key {number}"
                first, second = await asyncio.gather(one.secret(name), two.secret(name))
                assert first == second == await one.secret(name) == await two.secret(name)

    async def test_a_twin_in_a_thread_of_its_own_agrees_on_a_secret(self, tmp_path: Path) -> None:
        self.need(shared=True)
        async with self.opened(tmp_path) as store:

            async def ask() -> bytes:
                twin = store.twin()
                await twin.open()
                try:
                    return await twin.secret("key")
                finally:
                    await twin.close()

            mine, *theirs = await asyncio.gather(
                store.secret("key"), *(asyncio.to_thread(asyncio.run, ask()) for _ in range(3))
            )
            assert theirs == [mine] * 3

    @pytest.mark.parametrize(
        "name", ["", "a\0b", "\ud800", "k" * (NAME_LIMIT + 1)], ids=["empty", "NUL", "surrogate", "long"]
    )
    async def test_a_secret_whose_name_cannot_be_kept_is_refused(self, store: Store, name: str) -> None:
        with pytest.raises(InvalidValue, match="a secret's name"):
            await store.secret(name)

    async def test_a_secret_is_not_news(self, scene: Scene) -> None:
        with scene.store.listen() as feed:
            await scene.store.secret("key")
            last = await scene.create()
            news = await hear_until(feed, last.id)
        assert news == {last.id}

    async def test_a_store_that_is_not_open_has_no_secrets(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        with pytest.raises(StoreUnavailable, match="open it"):
            await store.secret("key")


QUICK, SLOW = Sketch().with_one(0.1), Sketch().with_one(60)
BOTH = QUICK.merged(SLOW)

TOOL_NAMES = ["tool", "Tool", "tool ", "tóol", "to\u0301ol", "a/b", "%", "🔧", "t" * NAME_LIMIT]
"""Names that are easily taken for each other, or not kept as they are."""

BAD_NAMES = {"empty": "", "NUL": "a\0b", "surrogate": "\ud800", "long": "t" * (NAME_LIMIT + 1)}


class LearningContract(ContractBase):
    async def test_what_was_learned_is_known_from_then_on(self, store: Store) -> None:
        assert await store.learn(NAMESPACE, {}) == {}
        assert await store.learn(NAMESPACE, {"build": QUICK}) == {"build": QUICK}
        assert await store.learn(NAMESPACE, {}) == {"build": QUICK}

    async def test_news_are_merged_with_what_is_known_and_all_of_it_is_returned(self, store: Store) -> None:
        await store.learn(NAMESPACE, {"build": QUICK, "test": QUICK})
        known = await store.learn(NAMESPACE, {"build": SLOW, "deploy": BOTH})
        assert known == {"build": BOTH, "test": QUICK, "deploy": BOTH}
        assert await store.learn(NAMESPACE, {}) == known

    async def test_what_was_returned_is_not_changed_by_what_is_learned_later(self, store: Store) -> None:
        before = await store.learn(NAMESPACE, {"build": QUICK})
        await store.learn(NAMESPACE, {"build": SLOW, "test": SLOW})
        assert before == {"build": QUICK}

    async def test_each_namespace_learns_for_itself(self, store: Store) -> None:
        await store.learn(NAMESPACE, {"build": QUICK})
        assert await store.learn("elsewhere", {"build": SLOW}) == {"build": SLOW}
        assert await store.learn("nowhere", {}) == {}
        assert await store.learn(NAMESPACE, {}) == {"build": QUICK}

    async def test_names_that_look_alike_are_others(self, store: Store) -> None:
        sketches = {name: Sketch({number: 1}) for number, name in enumerate(TOOL_NAMES)}
        assert await store.learn(NAMESPACE, sketches) == sketches
        for name in TOOL_NAMES:
            await store.learn(name, {"build": sketches[name]})
        assert [await store.learn(name, {}) for name in TOOL_NAMES] == [
            {"build": sketches[name]} for name in TOOL_NAMES
        ]

    async def test_what_is_older_fades(self, store: Store) -> None:
        await store.learn(NAMESPACE, {"build": Sketch({10: MOST - 1, 90: 1})})
        known = await store.learn(NAMESPACE, {"build": Sketch({20: 9})})
        assert known == {"build": Sketch({10: (MOST - 1) // 2, 20: 4})}
        assert await store.learn(NAMESPACE, {}) == known

    async def test_where_nothing_was_measured_nothing_is_learned(self, store: Store) -> None:
        assert await store.learn(NAMESPACE, {"build": Sketch()}) == {}
        await store.learn(NAMESPACE, {"build": QUICK})
        assert await store.learn(NAMESPACE, {"build": Sketch(), "test": Sketch()}) == {"build": QUICK}
        assert await store.learn(NAMESPACE, {}) == {"build": QUICK}

    async def test_names_beyond_the_bound_are_left_out_and_the_others_go_on_learning(self, store: Store) -> None:
        names = [f"tool {number:04}" for number in range(MOST_TOOLS)]
        await store.learn(NAMESPACE, dict.fromkeys(names[1:], QUICK))
        known = await store.learn(NAMESPACE, dict.fromkeys([names[0], "one too many", names[7]], SLOW))
        assert known == dict.fromkeys(names, QUICK) | {names[0]: SLOW, names[7]: BOTH}
        assert await store.learn(NAMESPACE, {"another": QUICK}) == known
        assert await store.learn("elsewhere", {"another": QUICK}) == {"another": QUICK}

    async def test_of_those_who_learn_at_once_nobodys_news_are_lost(self, store: Store) -> None:
        await asyncio.gather(*(store.learn(NAMESPACE, {"build": QUICK, f"{n % 3}": SLOW}) for n in range(30)))
        known = await store.learn(NAMESPACE, {})
        assert {name: sketch.total for name, sketch in known.items()} == {"build": 30, "0": 10, "1": 10, "2": 10}

    async def test_what_was_learned_is_known_after_reopening(self, tmp_path: Path) -> None:
        self.need(durable=True)
        async with self.opened(tmp_path) as store:
            known = await store.learn(NAMESPACE, {"build": BOTH, "test": SLOW})
        async with self.opened(tmp_path) as store:
            assert await store.learn(NAMESPACE, {}) == known

    async def test_handles_learn_together(self, tmp_path: Path) -> None:
        self.need(shared=True)
        async with self.opened(tmp_path) as one, self.opened(tmp_path) as two:
            for _ in range(10):
                await asyncio.gather(one.learn(NAMESPACE, {"build": QUICK}), two.learn(NAMESPACE, {"build": SLOW}))
            known = await one.learn(NAMESPACE, {})
            assert known == await two.learn(NAMESPACE, {})
            assert (known["build"].total, known["build"].share_within(1)) == (20, 0.5)

    async def test_a_twin_in_a_thread_of_its_own_learns_with_the_others(self, tmp_path: Path) -> None:
        self.need(shared=True)
        async with self.opened(tmp_path) as store:

            async def learn() -> None:
                twin = store.twin()
                await twin.open()
                try:
                    await twin.learn(NAMESPACE, {"build": QUICK})
                finally:
                    await twin.close()

            await asyncio.gather(*(asyncio.to_thread(asyncio.run, learn()) for _ in range(3)))
            assert (await store.learn(NAMESPACE, {}))["build"].total == 3

    @pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
    async def test_what_cannot_be_kept_is_refused_and_nothing_is_learned(self, store: Store, name: str) -> None:
        with pytest.raises(InvalidValue, match="a tool's name"):
            await store.learn(NAMESPACE, {"build": QUICK, name: QUICK})
        for news in ({}, {"build": QUICK}):
            with pytest.raises(InvalidValue, match="a namespace"):
                await store.learn(name, news)
        assert await store.learn(NAMESPACE, {}) == {}

    async def test_what_was_learned_outlives_the_tasks(self, scene: Scene) -> None:
        await scene.store.learn(NAMESPACE, {"build": QUICK})
        ended = await scene.do(await scene.create(), Cancel("alice"))
        assert ended.expires_at is not None
        await scene.store.prune(now=ended.expires_at + timedelta(days=36_500), limit=10)
        assert await scene.store.learn(NAMESPACE, {}) == {"build": QUICK}

    async def test_what_is_learned_is_not_news_and_changes_no_task(self, scene: Scene) -> None:
        task = await scene.begin()
        with scene.store.listen() as feed:
            await scene.store.learn(NAMESPACE, {task.tool.name: QUICK})
            last = await scene.create()
            news = await hear_until(feed, last.id)
        assert news == {last.id}
        assert await scene.load(task) == task

    async def test_a_store_that_is_not_open_learns_nothing(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for news in ({}, {"build": QUICK}):
            with pytest.raises(StoreUnavailable, match="open it"):
                await store.learn(NAMESPACE, news)
