"""Write generated docs and files: `python -m scripts.generate [--check]`.

On any page of the docs, the text between `<!-- generated: NAME ARGUMENTS -->` and `<!-- end -->` is generated. `PARTS`
has the function for each name. Some files are generated as a whole. With `--check`, nothing is written, and the script
fails if a file is out of date.
"""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from scripts.lifecycle_diagram import diagram, small_diagram

from raincheck import errors
from raincheck.core.lifecycle import INITIAL_PHASES, TRANSITIONS, Event, Phase, status_of
from raincheck.workflows import load
from scripts import command_line, conformance_tables, public_names, wire_types

ROOT = Path(__file__).parent.parent
PART = re.compile(r"(<!-- generated: ([\w-]+)(.*?) -->\n).*?(<!-- end -->)", re.DOTALL)

Member = TypeVar("Member", bound=StrEnum)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: python -m scripts.generate [--check]", file=sys.stderr)
        return 2
    stale = {file: text for file, text in current() if text != file.read_text(encoding="utf-8")}
    for file, text in stale.items():
        if arguments:
            print(f"{file.relative_to(ROOT)} is out of date: run scripts/check --fix", file=sys.stderr)
        else:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.relative_to(ROOT)}", file=sys.stderr)
    return 1 if arguments and stale else 0


def current() -> Iterator[tuple[Path, str]]:
    """Yield every file with generated content, and its current text."""
    yield from ((page, fill(page.read_text(encoding="utf-8"))) for page in pages())
    yield from ((module, wire_types.write(module)) for module in sorted(ROOT.glob("src/raincheck/wire/*_types.py")))
    yield from ((file, load.schema_text()) for file in ROOT.glob("src/raincheck/workflows/schema.json"))


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def fill(page: str) -> str:
    """Return the page with its generated parts up to date."""
    filled = PART.sub(lambda part: f"{part[1]}{PARTS[part[2]](*part[3].split())}\n{part[4]}", page)
    return _format(filled) if filled != page else page


def _format(page: str) -> str:
    """Format the code on a page. A method without its class is indented less, so its lines may be joined."""
    command = [Path(sys.executable).with_name("ruff"), "format", "--quiet", "--stdin-filename", "page.md", "-"]
    done = subprocess.run(command, input=page, text=True, capture_output=True, check=True, cwd=ROOT)  # noqa: S603 - of .venv
    return done.stdout


def phases() -> str:
    return _table(["phase", "meaning"], [[f"`{phase}`", text] for phase, text in _members(Phase)])


def events() -> str:
    leads = {event: dict[str, str]() for event in Event}
    leads[Event.CREATE] = {"(nothing)": ", ".join(f"`{phase}`" for phase in TRANSITIONS if phase in INITIAL_PHASES)}
    for before, row in TRANSITIONS.items():
        for event, after in row.items():
            leads[event][f"`{before}`"] = f"`{after}`"
    rows = [
        [f"`{event}`", text, "<br>".join(f"{before} → {after}" for before, after in leads[event].items())]
        for event, text in _members(Event)
    ]
    return _table(["event", "meaning", "from → to"], rows)


def statuses() -> str:
    rows = [
        [f"`{phase}`", *(f"`{status_of(phase, open_inputs=open_inputs)}`" for open_inputs in (0, 1))] for phase in Phase
    ]
    return _table(["phase", "status", "status with an open question"], rows)


def _members(kind: type[Member]) -> Iterator[tuple[Member, str]]:
    """Return each member of an enum with its docstring."""
    body = _find(inspect.getsource(kind).splitlines(), kind.__name__).body
    texts = [_one_line(node) for node in body if isinstance(node, ast.Expr)]
    return zip(kind, texts[1:], strict=True)


def _one_line(text: ast.Expr) -> str:
    return " ".join(ast.literal_eval(text.value).split())


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def error_tree() -> str:
    _, tree, _ = (errors.__doc__ or "").split("\n\n", 2)
    return f"```text\n{textwrap.dedent(tree)}\n```"


def error_classes() -> str:
    classes = sorted(_own_classes(errors), key=lambda error: error.__name__)
    return "\n\n".join(f"## {error.__name__}\n\n{_about_error(error)}" for error in classes)


def _own_classes(module: ModuleType) -> list[type]:
    return [item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__]


def _about_error(error: type) -> str:
    bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
    attributes = [f"`{name}`" for base in reversed(error.__mro__) for name in _attributes(base)]
    facts = f"A kind of {bases}." + (f" Carries {', '.join(dict.fromkeys(attributes))}." if attributes else "")
    return f"{facts}\n\n{inspect.getdoc(error)}"


def _attributes(error: type) -> list[str]:
    source = inspect.getsource(error) if errors.is_raincheck_error(error) else ""
    return re.findall(r"^        self\.(\w+) =", source, re.MULTILINE)


def methods(module: str, *names: str) -> str:
    """Return the public methods of classes, with their signatures."""
    lines = inspect.getsource(import_module(f"raincheck.{module}")).splitlines()
    parts: list[str] = []
    for name in names:
        prefix = f"{name}." if len(names) > 1 else ""
        parts += _constructor(lines, name)
        for node in _find(lines, name).body:
            if isinstance(node, Definition) and not node.name.startswith("_") and not _is_overload(node):
                signature = f"```python\n{_signature(lines, node)}\n```"
                parts.append(f"## {prefix}{node.name}\n\n{signature}\n\n{ast.get_docstring(node) or ''}".strip())
    return "\n\n".join(parts)


def _constructor(lines: list[str], name: str) -> list[str]:
    """Return the constructor of a class whose constructor is public."""
    definition = _find(lines, name)
    constructors = [node for node in definition.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    if name != "Engine" or not constructors:
        return []
    return [
        f"## Engine\n\n```python\n{_signature(lines, constructors[0])}\n```\n\n{ast.get_docstring(definition) or ''}"
    ]


def _is_overload(node: Definition) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == "overload" for decorator in node.decorator_list)


def _signature(lines: list[str], node: Definition) -> str:
    end = max(node.lineno, node.body[0].lineno - 1)
    return textwrap.dedent("\n".join(lines[_first_line(node) - 1 : end])).removesuffix(" ...").removesuffix(":")


def records(*modules: str) -> str:
    """Return the public records of modules, such as `core.commands`, with their fields."""
    kinds = [kind for name in modules for kind in _own_classes(import_module(f"raincheck.{name}"))]
    return "\n\n".join(
        f"{_heading(kind.__name__, package)}\n\n{inspect.getdoc(kind)}\n\n{_fields(kind)}".rstrip()
        for kind in kinds
        if is_dataclass(kind) or issubclass(kind, StrEnum)
        if (package := public_names.package_of(kind.__name__, kind))
    )


def _heading(name: str, package: str) -> str:
    return f"## {name}\n\n`from {package} import {name}`"


def functions(*modules: str) -> str:
    """Return the public functions of modules, with their signatures."""
    parts: list[str] = []
    for name in modules:
        module = import_module(f"raincheck.{name}")
        lines = inspect.getsource(module).splitlines()
        for node in ast.parse("\n".join(lines)).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                package := public_names.package_of(node.name, getattr(module, node.name))
            ):
                signature = f"```python\n{_signature(lines, node)}\n```"
                text = ast.get_docstring(node) or ""
                parts.append(f"{_heading(node.name, package)}\n\n{signature}\n\n{text}".rstrip())
    return "\n\n".join(parts)


def _fields(kind: type) -> str:
    lines: list[str] = []
    for node in _find(inspect.getsource(kind).splitlines(), kind.__name__).body[1:]:
        if isinstance(node, ast.AnnAssign | ast.Assign):
            lines.append(f"- `{ast.unparse(node)}`")
        elif isinstance(node, ast.Expr) and lines:
            lines[-1] += f": {_one_line(node)}"
    return "\n".join(lines)


def source(file: str, *names: str) -> str:
    """Return the source of definitions in a file of this repository, such as `ToyStore.claim`."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    definitions = [_find(lines, name) for name in names]
    parts = [textwrap.dedent("\n".join(lines[_first_line(node) - 1 : node.end_lineno])) for node in definitions]
    return "```python\n" + "\n\n\n".join(parts) + "\n```"


def _first_line(node: Definition) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _find(lines: list[str], name: str) -> Definition:
    node: ast.Module | Definition = ast.parse("\n".join(lines))
    for part in name.split("."):
        node = next(child for child in node.body if isinstance(child, Definition) and child.name == part)
    assert isinstance(node, Definition)  # noqa: S101 - a name has at least one part
    return node


PARTS: dict[str, Callable[..., str]] = {**conformance_tables.PARTS, **command_line.PARTS, **public_names.PARTS} | {
    "diagram": diagram,
    "small-diagram": small_diagram,
    "phases": phases,
    "events": events,
    "statuses": statuses,
    "error-tree": error_tree,
    "error-classes": error_classes,
    "methods": methods,
    "records": records,
    "functions": functions,
    "source": source,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
