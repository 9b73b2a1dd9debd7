"""Tests for loading the tasks of a target from real files, with the errors for invalid targets."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import cast

import pytest
from mcp.server.mcpserver import MCPServer

from raincheck.cli.loader import load_tasks, redirect_stdout_to_stderr, split_target
from raincheck.errors import ConfigurationError
from raincheck.server import Tasks
from raincheck.server.sdk_compat import AnyServer

pytestmark = pytest.mark.usefixtures("folder")

SERVER = """
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer

from raincheck import Tasks

mcp = MCPServer("reports")
tasks = Tasks(mcp, "tasks.db")
"""

OTHER = """
other_mcp = MCPServer("others")
others = Tasks(other_mcp, "tasks.db")
"""


def write(name: str, text: str = SERVER) -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return name


def refused(target: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_tasks(target)
    return str(caught.value)


def loaded(name: str) -> dict[str, object]:
    return vars(sys.modules[name])


@pytest.mark.parametrize("name", ["", ":tasks", ":mcp"])
def test_tasks_of_a_file_are_found_as_an_object_or_through_their_server(name: str) -> None:
    tasks = load_tasks(f"{write('reports.py')}{name}")
    assert tasks is loaded("reports")["tasks"]


@pytest.mark.parametrize("name", ["", ":tasks", ":mcp"])
def test_a_module_is_found_from_the_current_folder(name: str) -> None:
    write("package/__init__.py", "")
    write("package/server.py")
    assert load_tasks(f"package.server{name}") is loaded("package.server")["tasks"]


def test_a_package_is_a_module() -> None:
    write("package/__init__.py")
    assert load_tasks("package") is loaded("package")["tasks"]


def test_the_tasks_of_a_low_level_server_are_found() -> None:
    extra = """
async def call(ctx, params): ...
low = Server("low", on_call_tool=call)
Tasks(low, "tasks.db").enable("crunch")
del mcp, tasks
"""
    tasks = load_tasks(write("low.py", SERVER + extra))
    assert Tasks.of(cast("AnyServer", loaded("low")["low"])) is tasks


@pytest.mark.parametrize("target", ["fast.py", "fast.py:mcp", "fast.py:tasks"])
def test_the_tasks_of_a_fastmcp_server_are_found(target: str) -> None:
    text = SERVER.replace("raincheck import", "raincheck.fastmcp import").replace("MCPServer(", "FastMCP(")
    write("fast.py", f"from fastmcp import FastMCP\n{text}")
    assert load_tasks(target) is loaded("fast")["tasks"]


def test_a_server_is_forgotten_with_its_tasks() -> None:
    mcp = MCPServer("reports")
    Tasks(mcp, "tasks.db").enable("crunch")
    assert Tasks.of(mcp) is not None
    gone = weakref.ref(mcp)
    del mcp
    gc.collect()
    assert gone() is None


def test_an_object_inside_another_is_found() -> None:
    write("reports.py", SERVER + "class App:\n    tasks = tasks\n")
    assert load_tasks("reports.py:App.tasks") is loaded("reports")["tasks"]


def test_a_file_imports_what_is_beside_it_and_what_is_in_the_current_folder() -> None:
    write("servers/names.py", "NAME = 'reports'")
    write("places.py", "STORE = 'tasks.db'")
    write("servers/reports.py", f"import names, places\n{SERVER}")
    assert isinstance(load_tasks("servers/reports.py"), Tasks)


def test_a_module_that_imports_the_file_gets_the_same_module() -> None:
    write("more.py", "import reports\n@reports.tasks.tool\nasync def crunch() -> int: return 1\n")
    write("reports.py", f"{SERVER}\nimport more\nassert more.reports.tasks is tasks\n")
    assert isinstance(load_tasks("reports.py"), Tasks)


def test_a_file_with_the_name_of_another_module_does_not_replace_it() -> None:
    import json

    tasks = load_tasks(write("json.py"))
    assert isinstance(tasks, Tasks)
    assert sys.modules["json"] is json


def test_the_main_guard_of_a_file_does_not_run() -> None:
    write("reports.py", f'{SERVER}\nif __name__ == "__main__":\n    raise RuntimeError("started")\n')
    assert isinstance(load_tasks("reports.py"), Tasks)


def test_the_module_does_not_see_the_commands_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["raincheck", "tools", "reports.py"])
    write("reports.py", f"import sys\n{SERVER}\nassert sys.argv == ['reports.py'], sys.argv\n")
    assert isinstance(load_tasks("reports.py"), Tasks)
    assert sys.argv == ["raincheck", "tools", "reports.py"]


def test_the_target_selects_one_of_several_servers() -> None:
    write("reports.py", SERVER + OTHER)
    printed = refused("reports.py")
    assert printed == "reports.py has the tasks of several servers: write reports.py:tasks or reports.py:others"
    assert load_tasks("reports.py:others") is not load_tasks("reports.py:tasks")


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("", "as in tasks = Tasks(mcp)"),
        ("from mcp.server.mcpserver import MCPServer\nserver = MCPServer('a')\n", "as in tasks = Tasks(server)"),
    ],
)
def test_a_module_without_tasks_says_how_to_attach_them(text: str, how: str) -> None:
    printed = refused(write("reports.py", text))
    assert printed == f"reports.py has no tasks: attach tasks to a server at its top level, {how}"


@pytest.mark.parametrize(
    ("target", "reported"),
    [
        ("reports.py:nope", "reports.py has no 'nope': write reports.py:tasks"),
        ("reports.py:tasks.nope", "reports.py has no 'tasks.nope': write reports.py:tasks"),
        ("reports.py:my-tasks", "reports.py has no 'my-tasks': write reports.py:tasks"),
        (
            "reports.py:number",
            "'number' in reports.py is of type int, not a Tasks object or a server with tasks: write",
        ),
        ("reports.py:bare", "'bare' in reports.py is a server without tasks, not a Tasks object"),
        ("reports.py:", "'reports.py:' names nothing to load: write file.py, file.py:object, package.module or"),
        (":tasks", "':tasks' names nothing to load"),
        ("", "'' names nothing to load"),
        ("nope.py", "there is no file nope.py (in "),
        ("nope/reports.py:mcp", "there is no file nope/reports.py (in "),
        ("nope", "there is no module 'nope' in "),
        ("nope.server:mcp", "there is no module 'nope' in "),
        ("reports.server", "there is no module 'reports.server' in "),
        ("empty", "empty is a folder without workflows (*.yaml): name a file in it"),
        ("./empty/", "empty is a folder without workflows"),
        ("..", ".. is a folder without workflows"),
        (".reports", "there is no file .reports"),
        ("my-reports", "there is no file my-reports"),
        ("folder.py", "folder.py is a folder"),
        ("notes.txt", "notes.txt is not a Python file"),
    ],
)
def test_an_invalid_target_is_refused_with_a_suggestion(target: str, reported: str) -> None:
    write("reports.py", f"{SERVER}\nnumber = 3\nbare = MCPServer('bare')\n")
    write("notes.txt", "")
    Path("empty").mkdir()
    Path("folder.py").mkdir()
    assert refused(target).startswith(reported)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("one = 1\ndef two(:\n", "SyntaxError: invalid syntax (in reports.py, line 2)"),
        ("one = 1\n\nimport no_such_thing\n", "No module named 'no_such_thing' (in reports.py, line 3)"),
        ("from os import no_such_thing\n", "ImportError: cannot import name 'no_such_thing' from 'os'"),
        ("def run():\n    raise ValueError('too\\nbad')\nrun()\n", "ValueError: too bad (in reports.py, line 2)"),
        ("import json\njson.loads('{')\n", "(in reports.py, line 2)"),
        ("import helper\n", "ZeroDivisionError: division by zero (in helper.py, line 2)"),
        ("import reports_too\n", "SyntaxError: '(' was never closed (in reports_too.py, line 1)"),
        ("eval('1 +')\n", "SyntaxError: invalid syntax (in reports.py, line 1)"),
        ("class Odd(Exception):\n    def __str__(self): return 1 / 0\nraise Odd\n", "(in reports.py, line 3)"),
        ("import sys\nsys.exit('no key')\n", "it exits on import, with 'no key': put that under `if"),
        (
            "from . import helper\n",
            "ImportError: attempted relative import with no known parent package (in reports.py",
        ),
        (
            f"{SERVER}\nTasks(mcp)\n",
            "server 'reports' has tasks already: attach them only once (in reports.py, line 10)",
        ),
        ("one = '\0'\n", "can't be loaded: "),
    ],
)
@pytest.mark.parametrize("target", ["reports.py", "reports", "reports.py:mcp"])
def test_a_module_that_can_not_be_loaded_is_reported_with_file_and_line(target: str, text: str, reported: str) -> None:
    write("reports.py", text)
    write("helper.py", "one = 1\none / 0\n")
    write("reports_too.py", "one = (\n")
    printed = refused(target)
    assert printed.partition(":")[0] == f"{target.partition(':')[0]} can't be loaded"
    assert reported in printed
    assert "\n" not in printed


def test_a_module_that_failed_once_can_be_loaded_later() -> None:
    write("reports.py", "1 / 0")
    assert "ZeroDivisionError" in refused("reports.py")
    write("reports.py", f"{SERVER}# mended\n")
    assert load_tasks("reports.py") is loaded("reports")["tasks"]


def test_a_windows_drive_is_not_taken_for_an_object() -> None:
    assert split_target(r"C:\servers\reports.py") == (r"C:\servers\reports.py", None)
    assert split_target(r"C:\servers\reports.py:mcp") == (r"C:\servers\reports.py", "mcp")


def test_all_output_of_the_module_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with redirect_stdout_to_stderr():
        sys.stdout.write("by Python\n")
        os.write(1, b"by the system\n")
        subprocess.run([sys.executable, "-c", "print('by a program')"], check=True)
    sys.stdout.write("the answer\n")
    reported = capfd.readouterr()
    assert reported.out == "the answer\n"
    assert sorted(reported.err.splitlines()) == ["by Python", "by a program", "by the system"]


@pytest.mark.parametrize(
    "way", ["mcp.run()", "mcp.run('streamable-http')", "import asyncio; asyncio.run(mcp.run_stdio_async())"]
)
def test_a_file_that_runs_its_server_on_import_is_refused_with_a_remedy(way: str) -> None:
    run = MCPServer.run
    with pytest.raises(ConfigurationError) as refused:
        load_tasks(write("eager.py", f"{SERVER}\n{way}\n"))
    lines = len(f"{SERVER}\n{way}".splitlines())
    assert str(refused.value) == (
        "eager.py can't be loaded: it runs its server on import, as with mcp.run(): put that under "
        f'`if __name__ == "__main__":` (in eager.py, line {lines})'
    )
    assert MCPServer.run is run


def test_a_fastmcp_file_that_runs_its_server_on_import_is_refused_too() -> None:
    fast = "from fastmcp import FastMCP\nmcp = FastMCP('fast')\nmcp.run()\n"
    with pytest.raises(ConfigurationError, match="it runs its server on import"):
        load_tasks(write("eager_fast.py", fast))


def test_a_file_may_run_other_event_loops_on_import() -> None:
    more = "import anyio\nasync def ready() -> int:\n    return 7\nnumber = anyio.run(ready)\n"
    load_tasks(write("busy.py", SERVER + more))
    assert loaded("busy")["number"] == 7
