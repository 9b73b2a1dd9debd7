"""Whoever subclasses `V2025Contract` gets a test for each check, with its id in the name."""

import sys
import textwrap

import pytest

from raincheck.conformance import CHECKS
from tests.support.conformance.runs import HERE

pytest_plugins = ["pytester"]

TESTS = """
import sys
from raincheck.conformance import ConformanceTarget, Role, Timings, V2025Contract

NAMES = ("quick", "slow", "tool_error", "protocol_error", "asks", "samples", "reports_progress", "plain", "required")

class TestServer(V2025Contract):
    target = ConformanceTarget(command=[sys.executable, {script!r}, *{arguments!r}])
    roles = {{name: Role(name) for name in NAMES}} | {{"slow": Role("slow", takes=0.8)}}
    timings = Timings(timeout=4, quiet_period=0.1)
"""
SERVED = """
from contextlib import contextmanager
from test_conformance import TestServer as Told

class TestServed(Told):
    @classmethod
    @contextmanager
    def serve(cls):
        print("the server starts")
        yield cls.target
        print("the server stops")
"""
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-o", "addopts=", "-q", "-rsfw", "-k")


def write(pytester: pytest.Pytester, script: str, *arguments: str) -> None:
    text = TESTS.format(script=str(HERE / script), arguments=arguments)
    pytester.makepyfile(test_conformance=textwrap.dedent(text))


def test_there_is_a_test_for_each_check_with_its_id_in_the_name(pytester: pytest.Pytester) -> None:
    write(pytester, "fake_stdio.py")
    found = pytester.runpytest_subprocess("--collect-only", *OPTIONS, "g1")
    assert {f"test_conformance.py::TestServer::test_check[{check.id}]" for check in CHECKS} <= set(found.outlines)


def test_checks_pass_and_are_left_out_as_tests_are(pytester: pytest.Pytester) -> None:
    write(pytester, "fake_stdio.py")
    found = pytester.runpytest_subprocess(*OPTIONS, "g1-undeclared-list or g1-version or g1-list-shape")
    found.assert_outcomes(passed=2, skipped=1)
    found.stdout.fnmatch_lines(["SKIPPED*tasks.list is declared"])


def test_a_must_that_is_not_kept_fails_its_test_and_says_why(pytester: pytest.Pytester) -> None:
    write(pytester, "fake_stdio.py", "OldVersion")
    found = pytester.runpytest_subprocess(*OPTIONS, "g1-version or g1-list-shape")
    found.assert_outcomes(passed=1, failed=1)
    found.stdout.fnmatch_lines(["g1-version (MUST): *", "protocolVersion is 2025-06-18, and 2025-11-25 was asked for"])
    found.stdout.no_fnmatch_line("*Traceback*")


def test_a_should_that_is_not_kept_warns(pytester: pytest.Pytester) -> None:
    write(pytester, "fake_stdio.py", "EndlessTtl")
    found = pytester.runpytest_subprocess(*OPTIONS, "g1-ttl-limited")
    found.assert_outcomes(passed=1, warnings=1)
    found.stdout.fnmatch_lines(["*ConformanceWarning: g1-ttl-limited (SHOULD): *"])


def test_a_server_that_does_not_start_is_told_of(pytester: pytest.Pytester) -> None:
    write(pytester, "broken_servers.py", "ends at once")
    found = pytester.runpytest_subprocess(*OPTIONS, "g1-version")
    found.assert_outcomes(errors=1)
    found.stdout.fnmatch_lines(["the server could not be reached: *no such store*"])


def test_a_contract_without_a_server_says_what_to_write(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "from raincheck.conformance import V2025Contract\n\n\nclass TestServer(V2025Contract):\n    pass"
    )
    found = pytester.runpytest_subprocess(*OPTIONS, "g1-version")
    found.stdout.fnmatch_lines(["*NotImplementedError: say which server to check: set `target`, or override `serve`"])


def test_a_server_that_has_to_be_started_runs_while_its_tests_do(pytester: pytest.Pytester) -> None:
    write(pytester, "fake_stdio.py")
    pytester.makepyfile(test_served=SERVED)
    found = pytester.runpytest_subprocess("test_served.py", "-s", *OPTIONS, "TestServed and g1-version")
    found.assert_outcomes(passed=1)
    found.stdout.fnmatch_lines(["the server starts*", "*the server stops*"])


@pytest.mark.cold
def test_the_package_imports_neither_pytest_nor_a_client_until_it_needs_them(pytester: pytest.Pytester) -> None:
    heavy = "{'pytest', 'httpx2', 'mcp'}"
    script = f"import sys, raincheck.conformance as g1; g1.RequirementLevel; print({heavy} & set(sys.modules))"
    assert pytester.run(sys.executable, "-c", script).outlines == ["set()"]
