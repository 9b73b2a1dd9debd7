"""The test kit that raincheck is proved with, for whoever writes a store or tests tools.

- `StoreContract`: subclass it, say how to make your store, and pytest runs what every store must do.
- `DispatcherContract`: likewise for what gets attempts to workers, with processes that are killed, stopped and started.
- `StoreMachine`: a Hypothesis state machine that runs a store and the reference model side by side.
- `enumerate_crashes`: runs a scenario again and again, dying at each point in turn.
- `check_invariants`: reads a whole store and says everything that is wrong with it.
- `FakeClock`, `Scene`: time that goes when told, and short words for setting a scene.
- `raincheck.conformance`: a conformance suite for anybody's server of the tasks of MCP 2025-11-25.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raincheck.testing.clock import FakeClock
    from raincheck.testing.crash_points import Crashed, CrashPlan, enumerate_crashes
    from raincheck.testing.dispatcher_contract import DispatcherContract
    from raincheck.testing.harness import Scene
    from raincheck.testing.invariants import InvariantsBroken, check_invariants
    from raincheck.testing.state_machine import StoreMachine
    from raincheck.testing.store_contract import StoreContract

__all__ = [
    "CrashPlan",
    "Crashed",
    "DispatcherContract",
    "FakeClock",
    "InvariantsBroken",
    "Scene",
    "StoreContract",
    "StoreMachine",
    "check_invariants",
    "enumerate_crashes",
]

_HOMES = {
    "CrashPlan": "crash_points",
    "Crashed": "crash_points",
    "DispatcherContract": "dispatcher_contract",
    "FakeClock": "clock",
    "InvariantsBroken": "invariants",
    "Scene": "harness",
    "StoreContract": "store_contract",
    "StoreMachine": "state_machine",
    "check_invariants": "invariants",
    "enumerate_crashes": "crash_points",
}


def __getattr__(name: str) -> object:
    # Loaded when first asked for: the pytest plugin lives here too, and is part of every test run of whoever has
    # raincheck installed, with the extra for tests or without.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"raincheck.testing needs {error.name!r}: install it with pip install 'raincheck[testing]'", name=error.name
        ) from error
    return getattr(home, name)
