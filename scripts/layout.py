"""Check the layout: fail at modules and folders that are too large and at classes that share a name, report large ones.

Run it as `python scripts/layout.py`.

The limits are wide on purpose. A tight limit cuts classes in two and fills folders with fragments, so merely large
modules are reported for a person to judge, as are small modules that only one other module imports.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent

MAX_LINES, MANY_LINES, FEW_LINES = 500, 400, 60
MAX_MODULES, MANY_MODULES = 20, 15


@dataclass(frozen=True, slots=True)
class Layout:
    """The modules below one folder such as `src`, by their paths from the root."""

    lines: Mapping[str, int]
    importers: Mapping[str, set[str]]
    """The modules that import each module."""

    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The modules that define a public class, by its name."""

    @classmethod
    def read(cls, folder: Path) -> "Layout":
        texts = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in folder.rglob("*.py")}
        names = {_dotted(module): module for module in texts}
        importers: defaultdict[str, set[str]] = defaultdict(set)
        classes: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for module, text in texts.items():
            for name in _public_classes(text):
                classes[name] += (module,)
            for name in _imported(text):
                if name in names:
                    importers[names[name]].add(module)
        return cls({module: text.count("\n") for module, text in sorted(texts.items())}, importers, classes)

    @property
    def folders(self) -> Counter[str]:
        """The number of modules in each folder, except for `__init__`."""
        return Counter(module.rpartition("/")[0] for module in self.lines if not module.endswith("/__init__.py"))


def _dotted(module: str) -> str:
    return module.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _public_classes(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def duplicate_classes(layout: Layout) -> Iterator[str]:
    """Report public classes that share a name. Generated types and the mirror for FastMCP may."""
    for name, modules in sorted(layout.classes.items()):
        own = [module for module in modules if not module.endswith("_types.py") and "/fastmcp/" not in module]
        if len(own) > 1:
            yield f"{name} is the name of classes in {' and '.join(own)}: rename one"


def errors_of(layout: Layout) -> Iterator[str]:
    """Yield an error for each module and folder that is too large."""
    for module, lines in layout.lines.items():
        if lines >= MAX_LINES:
            yield f"{module} has {lines} lines: split it by topic ({MAX_LINES} is the limit)"
    for folder, modules in sorted(layout.folders.items()):
        if modules >= MAX_MODULES:
            yield f"{folder} has {modules} modules: move some into a new folder ({MAX_MODULES} is the limit)"


def notes_on(layout: Layout) -> Iterator[str]:
    """Yield a note for each module and folder that is large, or a candidate for a merge."""
    for module, lines in layout.lines.items():
        importers = layout.importers.get(module, set())
        if MANY_LINES < lines < MAX_LINES:
            yield f"{module} has {lines} lines"
        elif lines < FEW_LINES and len(importers) == 1 and not module.endswith("/__init__.py"):
            yield f"{module} has {lines} lines, and only {next(iter(importers))} imports it: it may belong inside"
    for folder, modules in sorted(layout.folders.items()):
        if MANY_MODULES < modules < MAX_MODULES:
            yield f"{folder} has {modules} modules"


def main() -> int:
    layouts = [Layout.read(ROOT / folder) for folder in ("src", "tests", "scripts", "docs_src", "examples")]
    for layout in layouts:
        for note in notes_on(layout):
            print(f"note: {note}")
    errors = [error for layout in layouts for error in errors_of(layout)] + [*duplicate_classes(layouts[0])]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
