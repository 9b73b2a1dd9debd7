"""A subclass of `V2025Contract` has a test for each check, with the id of the check in its name."""

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
from test_conformance import TestServer as Base

class TestServed(Base):
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
    result = pytester.runpytest_subprocess("--collect-only", *OPTIONS, "v2025")
    assert {f"test_conformance.py::TestServer::test_check[{check.id}]" for check in CHECKS} <= set(result.outlines)


def test_checks_pass_and_are_skipped_like_tests(pytester: pytest.Pytester) -> None:
    write(pytester, "fake_stdio.py")
    result = pytester.runpytest_subprocess(*OPTIONS, "v2025-undeclared-list or v2025-version or v2025-list-shape")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*tasks.list is declared"])


def test_an_unmet_must_fails_its_test_with_a_reason(pytester: pytest.Pytester) -> None:
    write(pytester, "fake_stdio.py", "OldVersion")
    result = pytester.runpytest_subprocess(*OPTIONS, "v2025-version or v2025-list-shape")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["v2025-version (MUST): *", "protocolVersion is 2025-06-18; requested 2025-11-25"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_an_unmet_should_warns(pytester: pytest.Pytester) -> None:
    write(pytester, "fake_stdio.py", "EndlessTtl")
    result = pytester.runpytest_subprocess(*OPTIONS, "v2025-ttl-limited")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*ConformanceWarning: v2025-ttl-limited (SHOULD): *"])


def test_a_server_that_does_not_start_is_reported(pytester: pytest.Pytester) -> None:
    write(pytester, "broken_servers.py", "ends at once")
    result = pytester.runpytest_subprocess(*OPTIONS, "v2025-version")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the server could not be reached: *no such store*"])


def test_a_contract_without_a_server_says_what_to_override(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "from raincheck.conformance import V2025Contract\n\n\nclass TestServer(V2025Contract):\n    pass"
    )
    result = pytester.runpytest_subprocess(*OPTIONS, "v2025-version")
    result.stdout.fnmatch_lines(["*NotImplementedError: no server to check: set `target`, or override `serve`"])


def test_serve_runs_the_server_during_its_tests(pytester: pytest.Pytester) -> None:
    write(pytester, "fake_stdio.py")
    pytester.makepyfile(test_served=SERVED)
    result = pytester.runpytest_subprocess("test_served.py", "-s", *OPTIONS, "TestServed and v2025-version")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["the server starts*", "*the server stops*"])


@pytest.mark.cold
def test_the_package_imports_neither_pytest_nor_a_client_until_it_needs_them(pytester: pytest.Pytester) -> None:
    heavy = "{'pytest', 'httpx2', 'mcp'}"
    script = (
        f"import sys, raincheck.conformance; raincheck.conformance.RequirementLevel; print({heavy} & set(sys.modules))"
    )
    assert pytester.run(sys.executable, "-c", script).outlines == ["set()"]
