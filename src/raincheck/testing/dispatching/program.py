"""A worker in a process of its own, which the suite starts, stops and kills.

`python program.py OPENER URL DIARY KIND CONCURRENCY` prints a line when it is ready and one for whatever its tools do,
and opens their gate at the first line that it gets. It ends when nobody can send it one any more.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module

from raincheck.engine import Engine, Settings, run_until_signal
from raincheck.stores.interface import Store
from raincheck.testing.dispatching.tools import Diary, make_toolbox

LEASE = 2.0


def settings_of(concurrency: int = 8) -> Settings:
    """Short times, for tests that wait for them on the real clock."""
    return Settings(lease=LEASE, patience=0.05, grace=0.5, look_every=0.5, concurrency=concurrency)


def find_opener(name: str) -> Callable[[str], Store]:
    """What makes a store of a URL, by its name: `package.module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


async def work(store: Store, diary: Diary, kind: str, concurrency: int) -> None:
    gate = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, hear, gate)
    await store.open()
    engine = Engine(store, make_toolbox(kind, diary, gate), settings=settings_of(concurrency))
    diary("ready", kind)
    await run_until_signal(engine)
    await store.close()


def hear(gate: asyncio.Event) -> None:
    if os.read(sys.stdin.fileno(), 100):
        gate.set()
    else:
        # Whoever started it is gone.
        os.kill(os.getpid(), signal.SIGKILL)


def _print(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


def main() -> None:
    opener, url, diary, kind, concurrency = sys.argv[1:]
    asyncio.run(work(find_opener(opener)(url), Diary(diary, _print), kind, int(concurrency)))


if __name__ == "__main__":
    main()
