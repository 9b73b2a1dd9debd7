"""A worker with a state machine, which kills itself in a state: `python killable_machine.py STORE DIARY [STATE]`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from raincheck import Engine, Settings, TaskContext, Toolbox, open_store, run_until_signal
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.workflows import Machine, Next, State, Timeout, Transition

SETTINGS = Settings(lease=1.0, park_after=0.1, grace=0.3, poll_interval=0.3)


def write_down(*words: object) -> None:
    with Path(os.environ["DIARY"]).open("a") as diary:
        diary.write(" ".join(map(str, words)) + "\n")


async def work(situation: InstanceSnapshot, task: TaskContext) -> Next:
    """Two recorded steps, and a death between them where that is asked for."""
    state = situation.state
    await task.step("first", write_down, state, "first")
    if os.environ.get("DIES_IN") == state:
        os.kill(os.getpid(), signal.SIGKILL)
    await task.step("second", write_down, state, "second")
    return Next("go", {state: "done"})


def watch(situation: InstanceSnapshot) -> None:
    """What does not pick a transition: somebody else does."""
    write_down(situation.state, "waits")
    if os.environ.get("DIES_IN") == situation.state:
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
    os.environ["DIARY"] = sys.argv[2]
    os.environ["DIES_IN"] = "".join(sys.argv[3:])
    asyncio.run(main(sys.argv[1]))
