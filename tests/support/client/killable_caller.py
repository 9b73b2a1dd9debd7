"""A caller in a separate process, which tests kill: it calls a tool, or resumes its saved calls.

python killable_caller.py CALLS URL MODE start       starts a task, prints its id, and waits for the result
python killable_caller.py CALLS URL MODE resume      waits for all saved calls, and prints their results
python killable_caller.py CALLS URL MODE many NAME   makes many calls of this name, and prints their results
"""

import asyncio
import sys

from mcp_types import CallToolResult

from raincheck.client import SavedCalls, TaskClient


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def result_of(result: CallToolResult) -> object:
    return dict[str, object](result.structured_content or {})["result"]


async def main() -> None:
    saved_calls, url, mode, what, *more = sys.argv[1:]
    async with TaskClient(url, mode=mode, saved_calls=SavedCalls(saved_calls)) as client:
        if what == "start":
            handle = await client.call("work", {"steps": 4, "ms": 300})
            say(handle.task_id)
            say(result_of(await handle.result()))
        elif what == "resume":
            for handle in await client.open_calls():
                say(handle.task_id, result_of(await handle.result()))
        else:
            calls = (client.call("add", {"a": number, "b": len(more[0])}) for number in range(20))
            for handle in await asyncio.gather(*calls):
                say(handle.task_id, result_of(await handle.result()))


if __name__ == "__main__":
    asyncio.run(main())
