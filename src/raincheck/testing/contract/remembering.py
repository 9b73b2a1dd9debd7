"""Definitions: what a task began under is there for as long as it lives, whoever comes later."""

from pathlib import Path

import pytest

from raincheck.core.commands import Complete
from raincheck.core.payload import encode
from raincheck.core.records import Tool
from raincheck.errors import InvalidValue
from raincheck.testing.contract.base import ContractBase
from raincheck.testing.scene import NAMESPACE, TOOL, Scene

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
