"""What every command has to wait for: no more than it needs."""

import json
import subprocess
import sys

import pytest

from raincheck.cli.commands.conformance import ANSWERED_WITHIN
from raincheck.conformance.caller import Timings

pytestmark = pytest.mark.cold

PARTS = ("testing", "server", "client", "dispatchers")
HEAVY = {"mcp", "httpx2", "jsonschema", "psycopg", "uvicorn", *(f"raincheck.{part}" for part in PARTS)}


def test_the_program_is_there_without_what_only_some_commands_need() -> None:
    script = "import json, sys; import raincheck.cli.app; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & HEAVY == set()


def test_the_suite_is_as_patient_as_it_says_of_itself() -> None:
    assert Timings.timeout == ANSWERED_WITHIN


def test_servers_in_python_need_nothing_that_only_workflows_do() -> None:
    script = "import json, sys; import raincheck.cli.loader; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & {"jinja2", "yaml"} == set()
