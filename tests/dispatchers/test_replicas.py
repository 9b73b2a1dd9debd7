"""Any server can answer for any task, whichever server created it and whichever worker runs it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raincheck.client import TaskCancelled, answer_later
from raincheck.errors import TaskNotFound
from tests.support.dispatchers.chaos_site import caller, chaos_site

pytestmark = pytest.mark.anyio


async def test_a_task_created_on_one_server_is_answered_and_cancelled_through_others(
    tmp_path: Path, database_url: str, record_property: Callable[[str, object], None]
) -> None:
    times: dict[str, float] = {}

    def note(name: str, started_at: float) -> None:
        times[name] = round(1_000 * (time.monotonic() - started_at), 1)
        record_property(f"milliseconds {name}", times[name])

    async with chaos_site(tmp_path, database_url) as site:
        a, b = await asyncio.gather(site.serve(), site.serve())
        await site.work()
        async with (
            caller(a, "alice", elicitation_callback=answer_later) as on_a,
            caller(b, "alice", elicitation_callback=answer_later) as on_b,
            caller(b, "bob") as other_owner,
        ):
            # Once before, so that the worker is up and its start is not measured.
            warm = await on_a.call("three_steps", {"number": 0, "ms": 0})
            assert (await warm.result()).structured_content == {"result": ["load 0", "clean 0", "publish 0"]}

            started_at = time.monotonic()
            created = await on_a.call("ask_and_wait")
            note("to create it on A", started_at)
            assert created.task_ref is not None
            followed = on_b.resume(created.task_ref)
            question = ""
            async with asyncio.timeout(30):
                async for update in followed:
                    if update.questions:
                        question = update.questions[0].key
                        break
            note("from its creation on A until B shows its question", started_at)

            started_at = time.monotonic()
            await followed.answer({question: {"action": "accept", "content": {"sure": True}}})
            await site.wait_for_line("answered", str(created.task_id), "accept")
            note("from the answer through B until the body on C has it", started_at)

            with pytest.raises(TaskNotFound):
                await other_owner.resume(created.task_ref).poll()

            watching = asyncio.create_task(followed.result())
            started_at = time.monotonic()
            await created.cancel()
            await site.wait_for_line("cancelled", str(created.task_id))
            note("from the cancel through A until the body on C has stopped", started_at)
            async with asyncio.timeout(10):
                with pytest.raises(TaskCancelled):
                    await watching
            note("from the cancel through A until the waiting client on B knows", started_at)
            assert all(process.returncode is None for process in site.workers)
    print(times)  # noqa: T201 - shown with -s
