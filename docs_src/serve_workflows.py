import asyncio
from pathlib import Path

from raincheck.workflows import WorkflowTasks

tasks = WorkflowTasks(Path(__file__).with_name("greetings.yaml"), "tasks.db")
app = tasks.server.streamable_http_app()  # for an ASGI server, or to mount in an application

if __name__ == "__main__":
    asyncio.run(tasks.run_with_reload(tasks.server.run_streamable_http_async(), print))
