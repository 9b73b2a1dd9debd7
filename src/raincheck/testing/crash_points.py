"""Crash points: run a scenario repeatedly, and crash at each place where it touches the disk.

A store's driver calls `CrashPlan.reach` before each operation on the data (a statement, a commit) and after each
commit. At the chosen point and at every later one that raises `SimulatedCrash`: like a killed process, the store
can't do anything afterwards, not even clean up. Then the data is opened again and checked.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from raincheck.stores.base import Store


class SimulatedCrash(BaseException):
    """The simulated death of the process. Not an `Exception`, so that no error handler can recover from it."""


@dataclass
class CrashPlan:
    """The point at which to crash, counted from 1 in the order reached. With `None`, points are only counted."""

    crash_at: int | None = None
    points: list[str] = field(default_factory=list[str])

    def reach(self, point: str) -> None:
        self.points.append(point)
        if self.crash_at is not None and len(self.points) >= self.crash_at:
            raise SimulatedCrash(f"crashed at point {self.crash_at}: {point}")


async def enumerate_crashes(
    make_store: Callable[[CrashPlan], Awaitable[Store]],
    scenario: Callable[[Store], Awaitable[object]],
    check: Callable[[], Awaitable[None]],
) -> list[str]:
    """Run the scenario, crash at each of its points in turn, and check the remaining data. Returns the points.

    - `make_store` creates fresh data, opens a store on it, and makes the store's driver report to the plan.
    - `scenario` operates on the store.
    - `check` opens the remaining data, without a plan, and raises an error if it is inconsistent.
    """
    plan = CrashPlan()
    store = await make_store(plan)
    ready = len(plan.points)
    await scenario(store)
    points = plan.points[ready:]
    await store.close()
    await check()
    for number, point in enumerate(points, 1):
        plan = CrashPlan()
        store = await make_store(plan)
        plan.crash_at = len(plan.points) + number
        try:
            await scenario(store)
        except SimulatedCrash:
            pass
        else:
            raise AssertionError(f"the scenario continued after a crash at point {number}: {point}")
        await store.close()
        try:
            await check()
        except AssertionError as error:
            error.add_note(f"after a crash at point {number} of {len(points)}: {point}")
            raise
    return points
