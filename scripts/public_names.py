"""The public packages, and what their names are for. Read from the source, so that nothing is imported for it."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"

PACKAGES = (
    "raincheck",
    "raincheck.client",
    "raincheck.workflows",
    "raincheck.fastmcp",
    "raincheck.stores",
    "raincheck.testing",
    "raincheck.conformance",
)
"""Whatever else the package contains is internal."""


def names_of(package: str) -> list[str]:
    return list(import_module(package).__all__)


def package_of(name: str, value: object) -> str | None:
    """Return the public package that exports this value by this name; None if it is internal."""
    exporting = (package for package in PACKAGES if name in names_of(package))
    return next((package for package in exporting if getattr(import_module(package), name) is value), None)


def table(package: str) -> str:
    """Return a table of a package's names, each with its first sentence."""
    rows = [f"| `{name}` | {_first_sentence(package, name)} |" for name in names_of(package)]
    return "\n".join(["| name | what it is |", "| --- | --- |", *rows])


def _first_sentence(package: str, name: str) -> str:
    text = next(_docstrings(package, name), None)
    if text is None:
        raise ValueError(f"{package}.{name} has no docstring: add one, since the reference lists every public name")
    sentence, *_ = " ".join(text.split("\n\n")[0].split()).replace("|", r"\|").split(". ")
    return sentence.removesuffix(".").removesuffix(":")


def _docstrings(module: str, name: str) -> Iterator[str]:
    """Yield the docstring of a name, from the module that defines it."""
    statements = list(_statements(module))
    for statement, following in zip(statements, [*statements[1:], None], strict=True):
        match statement:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if statement.name == name:
                yield from filter(None, [ast.get_docstring(statement)])
            case ast.ImportFrom(module=str(home)) if name in {alias.name for alias in statement.names}:
                yield from _docstrings(home, name)
            case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                if isinstance(following, ast.Expr):
                    yield str(ast.literal_eval(following.value))
            case _:
                pass


def _statements(module: str) -> Iterator[ast.stmt]:
    """Yield the statements of a module, and those of `if TYPE_CHECKING`."""
    path = SOURCE.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        yield statement
        if isinstance(statement, ast.If):
            yield from statement.body


PARTS = {"public-names": table}
