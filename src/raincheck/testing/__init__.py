"""Test kit for authors of stores, dispatchers and tools: the same tests that raincheck itself runs.

- `StoreContract`: subclass it, define how to make your store, and pytest runs the tests that every store must pass.
- `DispatcherContract`: the same for dispatchers, with worker processes that are killed, suspended and started.
- `StoreMachine`: a Hypothesis state machine that runs a store and the reference model side by side.
- `enumerate_crashes`: runs a scenario repeatedly and crashes at each point in turn.
- `check_invariants`: reads a whole store and reports everything that is wrong with it.
- `FakeClock`, `StoreHarness`: a clock that moves only when it is advanced, and shorthand for test setup.
- `raincheck.conformance`: a conformance suite for any server that implements the tasks of MCP 2025-11-25.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raincheck.testing.clock import FakeClock
    from raincheck.testing.crash_points import CrashPlan, SimulatedCrash, enumerate_crashes
    from raincheck.testing.dispatcher_contract import DispatcherContract
    from raincheck.testing.harness import StoreHarness
    from raincheck.testing.invariants import InvariantViolation, check_invariants
    from raincheck.testing.state_machine import StoreMachine
    from raincheck.testing.store_contract import StoreContract

__all__ = [
    "CrashPlan",
    "DispatcherContract",
    "FakeClock",
    "InvariantViolation",
    "SimulatedCrash",
    "StoreContract",
    "StoreHarness",
    "StoreMachine",
    "check_invariants",
    "enumerate_crashes",
]

_HOMES = {
    "CrashPlan": "crash_points",
    "SimulatedCrash": "crash_points",
    "DispatcherContract": "dispatcher_contract",
    "FakeClock": "clock",
    "InvariantViolation": "invariants",
    "StoreHarness": "harness",
    "StoreContract": "store_contract",
    "StoreMachine": "state_machine",
    "check_invariants": "invariants",
    "enumerate_crashes": "crash_points",
}


def __getattr__(name: str) -> object:
    # Imported on first access: the pytest plugin lives in this package too, and pytest loads it in every environment
    # that has raincheck installed, with or without the `testing` extra.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"raincheck.testing needs {error.name!r}: install it with pip install 'raincheck[testing]'", name=error.name
        ) from error
    return getattr(home, name)
