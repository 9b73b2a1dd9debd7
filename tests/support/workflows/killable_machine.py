"""A worker with a state machine, which kills itself in a state: `python killable_machine.py STORE LOG [STATE]`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from raincheck import Engine, Settings, TaskContext, Toolbox, open_store, run_until_signal
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.workflows import Machine, Next, State, Timeout, Transition

SETTINGS = Settings(lease=1.0, park_after=0.1, grace=0.3, poll_interval=0.3)


def write_log(*words: object) -> None:
    with Path(os.environ["LOG"]).open("a") as log:
        log.write(" ".join(map(str, words)) + "\n")


async def work(snapshot: InstanceSnapshot, task: TaskContext) -> Next:
    """Run two steps, and kill this process between them if it is to die in this state."""
    state = snapshot.state
    await task.step("first", write_log, state, "first")
    if os.environ.get("DIES_IN") == state:
        os.kill(os.getpid(), signal.SIGKILL)
    await task.step("second", write_log, state, "second")
    return Next("go", {state: "done"})


def watch(snapshot: InstanceSnapshot) -> None:
    """Pick no transition: the test takes one."""
    write_log(snapshot.state, "waits")
    if os.environ.get("DIES_IN") == snapshot.state:
        os.kill(os.getpid(), signal.SIGKILL)


machine = Machine(
    "validation",
    [
        State("loading", [Transition("go", "checking")], action=work),
        State("checking", [Transition("go", "approving")], action=work),
        State("approving", [Transition("approve", "resting")], action=watch),
        State("resting", [Transition("go", "storing")], timeout=Timeout(0.2, "go")),
        State("storing", [Transition("go", "stored")], action=work),
        State("stored", kind="success"),
    ],
)

toolbox = Toolbox()
toolbox.add(machine.tool())


async def main(store_name: str) -> None:
    async with open_store(store_name) as store:
        await run_until_signal(Engine(store, toolbox, settings=SETTINGS))


if __name__ == "__main__":
    os.environ["LOG"] = sys.argv[2]
    os.environ["DIES_IN"] = "".join(sys.argv[3:])
    asyncio.run(main(sys.argv[1]))
