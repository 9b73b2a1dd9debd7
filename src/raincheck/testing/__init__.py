"""The test kit that raincheck is proved with, for whoever writes a store or tests tools.

- `StoreContract`: subclass it, say how to make your store, and pytest runs what every store must do.
- `StoreMachine`: a Hypothesis state machine that runs a store and the reference model side by side.
- `enumerate_crashes`: runs a scenario again and again, dying at each point in turn.
- `check_invariants`: reads a whole store and says everything that is wrong with it.
- `FakeClock`, `Scene`: time that goes when told, and short words for setting a scene.
"""

try:
    from raincheck.testing.clock import FakeClock
    from raincheck.testing.contract import StoreContract
    from raincheck.testing.crashes import Crashed, CrashPlan, enumerate_crashes
    from raincheck.testing.invariants import InvariantsBroken, check_invariants
    from raincheck.testing.machine import StoreMachine
    from raincheck.testing.scene import Scene
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"raincheck.testing needs {error.name!r}: install it with pip install 'raincheck[testing]'", name=error.name
    ) from error

__all__ = [
    "CrashPlan",
    "Crashed",
    "FakeClock",
    "InvariantsBroken",
    "Scene",
    "StoreContract",
    "StoreMachine",
    "check_invariants",
    "enumerate_crashes",
]
