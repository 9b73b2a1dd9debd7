"""Secrets: what is signed or hashed with one today is recognised tomorrow, and by every handle."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from raincheck.core.commands import Cancel
from raincheck.core.text import NAME_LIMIT
from raincheck.errors import InvalidValue, StoreUnavailable
from raincheck.stores.checks import SECRET_SIZE
from raincheck.stores.interface import Store
from raincheck.testing.contract.base import ContractBase
from raincheck.testing.scene import Scene, hear_until

NAMES = ["key", "Key", "key ", "kéy", "ke\u0301y", "a/b", "%", "🔑", "k" * NAME_LIMIT]
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
        secrets = [await store.secret(name) for name in NAMES]
        assert len(set(secrets)) == len(NAMES)
        assert [await store.secret(name) for name in reversed(NAMES)] == secrets[::-1]

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
            secrets = [await store.secret(name) for name in NAMES]
        async with self.opened(tmp_path) as store:
            assert [await store.secret(name) for name in NAMES] == secrets

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
