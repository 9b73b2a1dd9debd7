"""A worker process for pipelines, which tests kill: `python killable_pipelines.py STORE FILE`."""

import asyncio
import sys
from pathlib import Path

from raincheck import open_store
from raincheck.engine import Engine, Settings, Toolbox, run_until_signal
from raincheck.workflows import load_workflows

SETTINGS = Settings(lease=1.5, park_after=0.1, grace=0.3, poll_interval=0.5)


def toolbox_of(file: Path) -> Toolbox:
    toolbox = Toolbox()
    for definition in load_workflows(file).definitions.values():
        toolbox.add(definition.tool())
    return toolbox


async def main(store_name: str, toolbox: Toolbox) -> None:
    async with open_store(store_name) as store:
        await run_until_signal(Engine(store, toolbox, settings=SETTINGS))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], toolbox_of(Path(sys.argv[2]))))
