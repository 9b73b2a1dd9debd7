"""Any server answers for any task, whichever of them took it and whichever worker runs it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raincheck.client import TaskCancelled, answer_later
from raincheck.errors import TaskNotFound
from tests.support.dispatchers.chaos_site import caller, chaos_site

pytestmark = pytest.mark.anyio


async def test_a_task_is_created_on_one_server_answered_through_another_and_cancelled_while_a_worker_runs_it(
    tmp_path: Path, database_url: str, record_property: Callable[[str, object], None]
) -> None:
    times: dict[str, float] = {}

    def note(what: str, began: float) -> None:
        times[what] = round(1_000 * (time.monotonic() - began), 1)
        record_property(f"milliseconds {what}", times[what])

    async with chaos_site(tmp_path, database_url) as site:
        a, b = await asyncio.gather(site.serve(), site.serve())
        await site.work()
        async with (
            caller(a, "alice", elicitation_callback=answer_later) as on_a,
            caller(b, "alice", elicitation_callback=answer_later) as on_b,
            caller(b, "bob") as not_hers,
        ):
            # Once before, so that the worker is up and what is measured is no start.
            warm = await on_a.call("three_steps", {"number": 0, "ms": 0})
            assert (await warm.result()).structured_content == {"result": ["load 0", "clean 0", "publish 0"]}

            began = time.monotonic()
            created = await on_a.call("ask_and_wait")
            note("to create it on A", began)
            assert created.task_ref is not None
            followed = on_b.resume(created.task_ref)
            question = ""
            async with asyncio.timeout(30):
                async for update in followed:
                    if update.questions:
                        question = update.questions[0].key
                        break
            note("from its creation on A until B shows its question", began)

            began = time.monotonic()
            await followed.answer({question: {"action": "accept", "content": {"sure": True}}})
            await site.wait_for_line("answered", str(created.task_id), "accept")
            note("from the answer through B until the body on C has it", began)

            with pytest.raises(TaskNotFound):
                await not_hers.resume(created.task_ref).poll()

            watching = asyncio.create_task(followed.result())
            began = time.monotonic()
            await created.cancel()
            await site.wait_for_line("cancelled", str(created.task_id))
            note("from the cancel through A until the body on C has stopped", began)
            async with asyncio.timeout(10):
                with pytest.raises(TaskCancelled):
                    await watching
            note("from the cancel through A until whoever waits on B knows", began)
            assert all(process.returncode is None for process in site.workers)
    print(times)  # noqa: T201 - shown with -s
