"""Crash points: run a scenario again and again, and die at each place where it touches the disk.

A store's driver calls `CrashPlan.reach` before each thing that it does to the data (a statement, a commit) and
after each commit. At the chosen point that raises `Crashed`, and from then on always: like a process that was
killed, the store can't do anything any more, not even clean up. Then the data is opened again and looked at.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from raincheck.stores.base import Store


class Crashed(BaseException):
    """The process is dead. Not an `Exception`, so that nothing that handles errors can bring it back."""


@dataclass
class CrashPlan:
    """Where to die: at the `at`-th point that is reached. None only counts."""

    at: int | None = None
    reached: list[str] = field(default_factory=list[str])

    def reach(self, point: str) -> None:
        self.reached.append(point)
        if self.at is not None and len(self.reached) >= self.at:
            raise Crashed(f"crashed at point {self.at}: {point}")


async def enumerate_crashes(
    make_store: Callable[[CrashPlan], Awaitable[Store]],
    scenario: Callable[[Store], Awaitable[object]],
    check: Callable[[], Awaitable[None]],
) -> list[str]:
    """Run the scenario, dying at each of its points in turn, and check what is left. Returns the points.

    - `make_store` makes fresh data, opens a store on it, and lets the store's driver report to the plan.
    - `scenario` does something to the store.
    - `check` opens the data that is left, without a plan, and raises if it makes no sense.
    """
    plan = CrashPlan()
    store = await make_store(plan)
    ready = len(plan.reached)
    await scenario(store)
    points = plan.reached[ready:]
    await store.close()
    await check()
    for number, point in enumerate(points, 1):
        plan = CrashPlan()
        store = await make_store(plan)
        plan.at = len(plan.reached) + number
        try:
            await scenario(store)
        except Crashed:
            pass
        else:
            raise AssertionError(f"the scenario went on after a crash at point {number}: {point}")
        await store.close()
        try:
            await check()
        except AssertionError as error:
            error.add_note(f"after a crash at point {number} of {len(points)}: {point}")
            raise
    return points
