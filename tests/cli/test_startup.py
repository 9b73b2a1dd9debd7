"""Tests that commands import only what they need."""

import json
import subprocess
import sys

import pytest

from raincheck.cli.commands.conformance import RESPONSE_TIMEOUT
from raincheck.conformance.caller import Timings

pytestmark = pytest.mark.cold

PARTS = ("testing", "server", "client", "dispatchers")
HEAVY = {"mcp", "httpx2", "jsonschema", "psycopg", "uvicorn", *(f"raincheck.{part}" for part in PARTS)}


def test_the_program_starts_without_importing_what_only_some_commands_need() -> None:
    script = "import json, sys; import raincheck.cli.app; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & HEAVY == set()


IMPORTED_BY = """
import atexit, json, sys
from raincheck.cli import main
sys.argv = ["raincheck", *sys.argv[1:]]
atexit.register(lambda: print(json.dumps(list(sys.modules)), file=sys.stderr))
main()
"""


def imported_by(*words: str) -> set[str]:
    """Return the modules that a command imports."""
    command = [sys.executable, "-c", IMPORTED_BY, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Usage: raincheck" in done.stdout
    return set(json.loads(done.stderr))


@pytest.mark.parametrize("words", [("--help",), ("tasks", "--help"), ("workflow", "--help")])
def test_the_list_of_commands_imports_none_of_them(words: tuple[str, ...]) -> None:
    ours = {name for name in imported_by(*words) if name.startswith("raincheck")}
    assert ours == {"raincheck", "raincheck._lazy", "raincheck.cli", "raincheck.cli.app"}


def test_the_help_of_a_call_imports_neither_the_sdk_nor_a_store() -> None:
    imported = imported_by("call", "--help")
    assert (
        imported & {*HEAVY, "mcp_types", "raincheck.engine", "raincheck.stores.base", "raincheck.stores.factory"}
        == set()
    )


def test_commands_on_a_store_import_no_sdk() -> None:
    names = [
        "doctor",
        "migrate",
        "stats",
        *(f"tasks.{name}" for name in ("control", "ls", "purge", "show", "watch")),
    ]
    imports = "; ".join(f"import raincheck.cli.commands.{name}" for name in names)
    script = f"import json, sys; {imports}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & {*HEAVY, "mcp_types", "starlette"} == set()


def test_the_timeout_of_the_conformance_command_is_that_of_the_suite() -> None:
    assert Timings.timeout == RESPONSE_TIMEOUT


def test_python_servers_do_not_import_the_dependencies_of_workflows() -> None:
    script = "import json, sys; import raincheck.cli.loader; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & {"jinja2", "yaml"} == set()


HELP_OF_ALL = """
import sys
for name in ("fastmcp", "jinja2", "procrastinate", "psycopg", "psycopg_pool", "yaml"):
    sys.modules[name] = None
from typer.main import get_command
from typer.testing import CliRunner
from raincheck.cli.app import program

def check(group, *words):
    # `workflow` has an extra of its own.
    for name in group.lazy.keys() - {"workflow"}:
        command = group.get_command(None, name)
        if hasattr(command, "lazy"):
            check(command, *words, name)
        else:
            done = CliRunner().invoke(program, [*words, name, "--help"])
            print(*words, name, done.exit_code, repr(done.exception) if done.exit_code else "")

check(get_command(program))
"""


def test_no_command_needs_another_extra_than_that_of_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-c", HELP_OF_ALL], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert "call 0 " in lines
    assert "tasks ls 0 " in lines
    assert [line for line in lines if not line.endswith(" 0 ")] == []
