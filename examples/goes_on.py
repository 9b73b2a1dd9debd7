"""A program that is killed in the middle of a task, starts again and resumes the task: `python examples/goes_on.py`.

It starts itself twice as a subprocess (`baker` below), and kills the first one. The two share only the file in which
the task is stored.
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
    # A lease of one second, so that the second process takes the task over soon. The default is 15.
    async with open_store(path) as store, Engine(store, toolbox, settings=Settings(lease=1)) as engine:
        # The same key returns the same task: the second process gets the task that the first one started.
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
        print("FAILED: the second process did not resume where the first was killed", file=sys.stderr)
        return 1
    print("\nShown: finished steps did not run again, the interrupted step did,\nand the task completed.")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(baker(sys.argv[1]))
    else:
        sys.exit(main())
