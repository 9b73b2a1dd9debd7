"""Test kit for authors of stores, dispatchers and tools: the same tests that raincheck itself runs.

- `StoreContract`: subclass it, define how to make your store, and pytest runs the tests that every store must pass.
- `DispatcherContract`: the same for dispatchers, with worker processes that are killed, suspended and started.
- `StoreMachine`: a Hypothesis state machine that runs a store and the reference model side by side.
- `enumerate_crashes`: runs a scenario repeatedly and crashes at each point in turn.
- `check_invariants`: reads a whole store and reports everything that is wrong with it.
- `FakeClock`, `StoreHarness`: a clock that moves only when it is advanced, and shorthand for test setup.
- `raincheck.conformance`: a conformance suite for any server that implements the tasks of MCP 2025-11-25.
"""

from typing import TYPE_CHECKING

from raincheck._lazy import lazy_exports

if TYPE_CHECKING:
    from raincheck.testing.clock import FakeClock as FakeClock
    from raincheck.testing.crash_points import CrashPlan as CrashPlan
    from raincheck.testing.crash_points import SimulatedCrash as SimulatedCrash
    from raincheck.testing.crash_points import enumerate_crashes as enumerate_crashes
    from raincheck.testing.dispatcher_contract import DispatcherContract as DispatcherContract
    from raincheck.testing.harness import StoreHarness as StoreHarness
    from raincheck.testing.invariants import InvariantViolation as InvariantViolation
    from raincheck.testing.invariants import check_invariants as check_invariants
    from raincheck.testing.state_machine import StoreMachine as StoreMachine
    from raincheck.testing.store_contract import StoreContract as StoreContract
else:
    # Imported on first use: the pytest plugin lives in this package too, and pytest loads it in every environment that
    # has raincheck installed, with or without the `testing` extra.
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "raincheck.testing.clock": "FakeClock",
            "raincheck.testing.crash_points": "CrashPlan SimulatedCrash enumerate_crashes",
            "raincheck.testing.dispatcher_contract": "DispatcherContract",
            "raincheck.testing.harness": "StoreHarness",
            "raincheck.testing.invariants": "InvariantViolation check_invariants",
            "raincheck.testing.state_machine": "StoreMachine",
            "raincheck.testing.store_contract": "StoreContract",
        },
        extra="testing",
    )
