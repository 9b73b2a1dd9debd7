"""A server on the standard streams that tests kill: `python killable_server.py STORE DIARY`.

Its tools write a line to the diary for every answer, so that a test can count the answers.
"""

# pyright: reportUnusedFunction=false

import sys
from pathlib import Path

# A script can import only from its own folder.
sys.path.insert(0, str(Path(__file__).parents[4]))

from mcp.server.mcpserver import MCPServer

from raincheck import TaskContext, Tasks
from raincheck.errors import ProtocolError
from tests.support.server.killable_server import SETTINGS, STUBBORN, Sure


def build(store: str, diary: Path) -> MCPServer:
    mcp = MCPServer("killable", log_level="WARNING")
    tasks = Tasks(mcp, store, settings=SETTINGS)

    def write_down(*words: object) -> None:
        """Write one line in a single write, so that it is complete or absent."""
        with diary.open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")

    @tasks.tool(retry=STUBBORN)
    async def ask_twice(task: TaskContext) -> str:
        try:
            first = (await task.elicit("Sure?", Sure)).action
        except ProtocolError as error:
            first = f"refused with {error.code} {error} {error.data}"
        write_down(task.attempt, first)
        second = await task.elicit("Really?", Sure)
        return f"{first}, then {second.action}"

    return mcp


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2])).run("stdio")
