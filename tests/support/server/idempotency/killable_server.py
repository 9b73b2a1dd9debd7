"""A server process that tests kill: `python killable_server.py PORT FOLDER`.

Its tool writes to a diary what it does, and waits until a test has created a file. With DIES in its environment, the
server kills itself where it would release the key of a retrieved result, as soon as a test has created another file.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

# Run as a script, it has only its own folder to import from.
sys.path.insert(0, str(Path(__file__).parents[4]))

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from raincheck import TaskContext, Tasks
from raincheck.core.records import TaskId
from raincheck.stores.sqlite import SqliteStore
from tests.support.server.killable_server import SETTINGS, STUBBORN

POLL_INTERVAL = 0.02
"""Seconds: the test is another process, so there is nothing to wait on but time."""


async def until_exists(file: Path) -> None:
    while not await asyncio.to_thread(file.exists):  # noqa: ASYNC110 - see above
        await asyncio.sleep(POLL_INTERVAL)


def build(folder: Path) -> MCPServer:
    mcp = MCPServer("killable", log_level="WARNING")
    tasks = Tasks(mcp, folder / "tasks.db", settings=SETTINGS)

    def write_down(*words: object) -> None:
        """Append one line in one write, so that it is there whole or not at all."""
        with (folder / "diary").open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    @tasks.tool(annotations=ToolAnnotations(idempotent_hint=True), retry=STUBBORN, inline_for=0)
    async def work(page: int, task: TaskContext) -> str:
        await asyncio.to_thread(write_down, task.id, "begins")
        await until_exists(folder / "go")
        return f"{page} by {task.id}"

    return mcp


def die_instead_of_releasing(folder: Path) -> None:
    async def release_key(_: SqliteStore, __: TaskId, ___: str) -> None:
        await until_exists(folder / "die")
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(SqliteStore, "release_key", release_key)  # noqa: B010 - in the place of a method


def main() -> None:
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    if os.environ.get("DIES"):
        die_instead_of_releasing(folder)
    build(folder).run("streamable-http", port=port)


if __name__ == "__main__":
    main()
