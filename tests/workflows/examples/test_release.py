"""The example of a release: approved, refused, failed, and undone when it fails after the push."""

import asyncio
import subprocess
import tarfile
from pathlib import Path

import pytest

from raincheck.core.lifecycle import Phase
from tests.support.workflows.example_files import EXAMPLES, ExampleRunner

pytestmark = pytest.mark.anyio


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExampleRunner:
    """A scratch repository, without the git configuration of this machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "scratch"
    subprocess.run(["sh", EXAMPLES / "make-scratch-repository.sh", folder], check=True)  # noqa: S607 - our own
    bench = ExampleRunner(folder, "release")
    bench.replace_text("backoff: 10s", "backoff: 0.01s")
    git(bench, "commit", "-q", "--amend", "--no-edit", "-a")
    return bench


def git(release: ExampleRunner, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=release.folder, check=True, capture_output=True, text=True)  # noqa: S607 - likewise
    return done.stdout.strip()


async def tags(release: ExampleRunner) -> tuple[str, str]:
    """Those here, and those of the remote."""
    here = await asyncio.to_thread(git, release, "tag")
    there = await asyncio.to_thread(git, release, "-C", "remote.git", "tag")
    return here, there


async def test_an_approved_release_is_tagged_pushed_and_published(release: ExampleRunner) -> None:
    async with release.running():
        task = await release.submit(tag="v1.0.0")
        assert task.subject == "v1.0.0"
        question = await release.answer(task.id, {"publish": True})
        view, result = await release.wait_for_end(task.id)
    assert "Publish v1.0.0?" in question
    assert "- Numbers can be doubled" in question
    assert view.task.phase is Phase.COMPLETED, result
    assert isinstance(result, dict)
    assert (result["published"], result["changelog"]) == (True, "- Numbers can be doubled")
    assert len(str(result["checksum"])) == 64
    assert await tags(release) == ("v1.0.0", "v1.0.0")
    with tarfile.open(release.folder / "releases" / "v1.0.0.tar.gz") as archive:
        assert "v1.0.0/numbers_kit.py" in archive.getnames()


async def test_the_changelog_starts_at_the_last_release(release: ExampleRunner) -> None:
    await asyncio.to_thread(git, release, "tag", "v0.1.0")
    await asyncio.to_thread(git, release, "commit", "-q", "--allow-empty", "-m", "Nothing new")
    async with release.running():
        task = await release.submit(tag="v0.2.0")
        await release.answer(task.id, {"publish": False})
        _, result = await release.wait_for_end(task.id)
    assert isinstance(result, dict)
    assert result["changelog"] == "- Nothing new"


async def test_a_release_that_is_not_approved_is_only_built(release: ExampleRunner) -> None:
    async with release.running():
        task = await release.submit(tag="v1.0.0")
        await release.answer(task.id, {"publish": False})
        view, result = await release.wait_for_end(task.id)
    assert view.task.phase is Phase.COMPLETED
    assert not view.task.is_error, result
    assert isinstance(result, dict)
    assert result["published"] is False
    assert await tags(release) == ("", "")


async def test_a_declined_question_fails_the_release(release: ExampleRunner) -> None:
    async with release.running():
        task = await release.submit(tag="v1.0.0")
        await release.answer(task.id, None, action="decline")
        view, result = await release.wait_for_end(task.id)
    assert view.task.is_error
    assert "step 'approve' failed (declined)" in str(result)
    assert await tags(release) == ("", "")


async def test_failing_tests_end_the_release_before_the_question(release: ExampleRunner) -> None:
    (release.folder / "numbers_kit.py").write_text("def twice(number):\n    return number\n")
    await asyncio.to_thread(git, release, "commit", "-q", "-a", "-m", "Half of it will do")
    async with release.running():
        view, result = await release.wait_for_end((await release.submit(tag="v1.0.0")).id)
    assert view.task.is_error
    assert isinstance(result, dict)
    assert "step 'test' failed (exit)" in str(result["message"])
    assert "21 != 42" in str(result["message"])


async def test_a_failure_after_the_push_removes_the_tag_locally_and_remotely(release: ExampleRunner) -> None:
    (release.folder / "releases").rmdir()
    async with release.running():
        task = await release.submit(tag="v1.0.0")
        await release.answer(task.id, {"publish": True})
        view, result = await release.wait_for_end(task.id)
    assert view.task.is_error
    assert "step 'publish' failed (exit)" in str(result)
    assert "undone by unpush, untag" in str(result)
    assert await tags(release) == ("", "")


async def test_an_unreachable_remote_is_retried_and_then_the_tag_is_removed(release: ExampleRunner) -> None:
    (release.folder / "remote.git").rename(release.folder / "releases" / "elsewhere.git")
    async with release.running():
        task = await release.submit(tag="v1.0.0")
        await release.answer(task.id, {"publish": True})
        view, result = await release.wait_for_end(task.id)
    assert view.task.is_error
    assert "step 'push' failed (exit)" in str(result)
    assert "undo step unpush failed: exit code 128" in str(result)
    assert await asyncio.to_thread(git, release, "tag") == ""


async def test_an_existing_tag_is_left_alone(release: ExampleRunner) -> None:
    await asyncio.to_thread(git, release, "tag", "v1.0.0")
    async with release.running():
        view, result = await release.wait_for_end((await release.submit(tag="v1.0.0")).id)
    assert view.task.is_error
    assert "step 'is-new' failed (exit)" in str(result)
    assert (await tags(release))[0] == "v1.0.0"


async def test_uncommitted_changes_are_not_released(release: ExampleRunner) -> None:
    (release.folder / "numbers_kit.py").write_text("")
    async with release.running():
        view, result = await release.wait_for_end((await release.submit(tag="v1.0.0")).id)
    assert view.task.is_error
    assert "there are changes: commit or stash them" in str(result)


async def test_commits_after_the_question_are_not_in_the_release(release: ExampleRunner) -> None:
    before = await asyncio.to_thread(git, release, "rev-parse", "HEAD")
    async with release.running() as engine:
        task = await release.submit(tag="v1.0.0")
        await engine.wait(task.id, until=lambda one: one.open_inputs == 1)
        await asyncio.to_thread(git, release, "commit", "-q", "--allow-empty", "-m", "Too late")
        await release.answer(task.id, {"publish": True})
        _, result = await release.wait_for_end(task.id)
    assert "Too late" not in str(result)
    assert await asyncio.to_thread(git, release, "rev-parse", "v1.0.0^{commit}") == before


async def test_a_tag_that_another_user_pushed_meanwhile_stays(release: ExampleRunner) -> None:
    async with release.running() as engine:
        task = await release.submit(tag="v1.0.0")
        await engine.wait(task.id, until=lambda one: one.open_inputs == 1)
        await asyncio.to_thread(git, release, "push", "-q", "origin", "HEAD:refs/tags/v1.0.0")
        await release.answer(task.id, {"publish": True})
        view, result = await release.wait_for_end(task.id)
    assert view.task.is_error
    assert "step 'push' failed (exit)" in str(result)
    assert await tags(release) == ("", "v1.0.0")
