"""The same server in two processes that share a file: one accepts tasks and answers requests, the other runs tasks."""

from mcp.server.mcpserver import MCPServer

from raincheck import Tasks


def build(store: str, *, works: bool) -> tuple[MCPServer, Tasks]:
    mcp = MCPServer("split")
    tasks = Tasks(mcp, store, works=works)

    @tasks.tool
    async def greet(name: str) -> str:  # pyright: ignore[reportUnusedFunction] - the decorator registers it
        """Greet a person by name."""
        return f"Hello, {name}!"

    return mcp, tasks


def serve(store: str = "tasks.db") -> None:
    mcp, _ = build(store, works=False)
    mcp.run("streamable-http")


async def work(store: str = "tasks.db") -> None:
    _, tasks = build(store, works=True)
    await tasks.run_until_signal()
