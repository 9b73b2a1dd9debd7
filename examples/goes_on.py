"""A program that is killed in the middle of a task, is started again, and goes on: `python examples/goes_on.py`.

It starts itself twice as another process (`baker` below), and kills the first one. Nothing is passed from one to the
other but the file that the task is kept in.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from raincheck import Engine, Settings, TaskContext, Toolbox, open_store

toolbox = Toolbox()


@toolbox.tool
async def bake_bread(loaves: int, task: TaskContext) -> str:
    for number, name in enumerate(("mix", "knead", "rise", "bake"), start=1):
        await task.step(name, do, name)
        await task.progress(number, 4)
    return f"{loaves} loaves, in attempt {task.attempt}"


async def do(name: str) -> None:
    print(f"  {name}", flush=True)
    await asyncio.sleep(0.3)


async def baker(path: str) -> None:
    # A lease of a second, so that we need not wait for long until the task is taken back. The default is 15.
    async with open_store(path) as store, Engine(store, toolbox, settings=Settings(lease=1)) as engine:
        # The same key gives the same task, so the second process asks for what the first one began.
        task = await engine.submit("bake_bread", {"loaves": 3}, idempotency_key="breakfast")
        print(f"  completed: {await engine.result(task.id)}")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="raincheck-") as folder:
        command = [sys.executable, __file__, str(Path(folder) / "tasks.db")]
        print("The first process:")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:  # noqa: S603 - this very program
            for line in first.stdout or ():
                print(line, end="")
                if "rise" in line:
                    first.kill()
                    print("  (killed)")
        print("The second process:")
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - likewise
        print(second.stdout, end="")
    if second.stdout.split("\n")[:3] != ["  rise", "  bake", "  completed: 3 loaves, in attempt 2"]:
        print("NOT as it should be: it should go on from where the first was killed", file=sys.stderr)
        return 1
    print("\nShown: what was finished was not done again, what was cut off was,\nand the task came to its end.")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(baker(sys.argv[1]))
    else:
        sys.exit(main())
