"""Fails when a module is too long: `python scripts/sizes.py`. About 150 lines are comfortable; the cap is the end.

A module that is longer stands in `EXCEPTIONS` with its exact size. It may shrink, never grow.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent

CAPS = {
    "src": 225,
    "src/raincheck/testing": 300,
    "tests": 400,
    "docs_src": 150,
    "examples": 400,
    "bench": 225,
    "scripts": 225,
}
"""The most lines that a module in a folder may have. The longest folder that fits counts."""

EXCEPTIONS: dict[str, int] = {}


def main() -> int:
    faults = list(find_faults(measure(ROOT)))
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def measure(root: Path) -> dict[str, int]:
    """The lines of every module below the folders that have a cap."""
    tops = [folder for folder in CAPS if "/" not in folder]
    files = (file for top in tops for file in sorted(root.glob(f"{top}/**/*.py")))
    return {file.relative_to(root).as_posix(): len(file.read_text(encoding="utf-8").splitlines()) for file in files}


def find_faults(
    sizes: Mapping[str, int], caps: Mapping[str, int] = CAPS, exceptions: Mapping[str, int] = EXCEPTIONS
) -> Iterator[str]:
    """What is wrong, each with what to do about it."""
    for module, size in sizes.items():
        cap = caps[max((folder for folder in caps if module.startswith(f"{folder}/")), key=len)]
        listed = exceptions.get(module)
        if listed is None:
            if size > cap:
                yield f"{module} has {size} lines, and {cap} are allowed: split it by what it is about"
        elif size <= cap:
            yield f"{module} has {size} lines, within the {cap} allowed: remove it from EXCEPTIONS in scripts/sizes.py"
        elif size > listed:
            yield f"{module} grew to {size} lines from the {listed} it may have as an exception: split it"
        elif size < listed:
            yield f"{module} shrank to {size} lines: write {size} for {listed} in EXCEPTIONS in scripts/sizes.py"
    for module in sorted(exceptions.keys() - sizes.keys()):
        yield f"{module} is not there any more: remove it from EXCEPTIONS in scripts/sizes.py"


if __name__ == "__main__":
    sys.exit(main())
