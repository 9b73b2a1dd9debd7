"""Running the checks that somebody chose, of a server that they named."""

import fnmatch

from rich.console import Console
from rich.progress import Progress

from raincheck.cli.headers import read_headers
from raincheck.testing.g1.caller import Pace
from raincheck.testing.g1.check import Check
from raincheck.testing.g1.checks import CHECKS
from raincheck.testing.g1.report import Finding, Report
from raincheck.testing.g1.roles import Roles
from raincheck.testing.g1.running import run_suite
from raincheck.testing.g1.target import Target


async def run(target: Target, roles: Roles, checks: list[Check], pace: Pace, *, shows_bar: bool) -> Report:
    """Run the checks, with a bar on a terminal meanwhile."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not (shows_bar and console.is_terminal)) as bar:
        line = bar.add_task(f"checking {target}", total=len(checks))

        def told(finding: Finding) -> None:
            bar.update(line, advance=1, description=finding.check.id)

        return await run_suite(target, roles, checks=checks, pace=pace, told=told)


def make_target(words: list[str], headers: list[str], other_headers: list[str]) -> Target:
    is_url = len(words) == 1 and words[0].startswith(("http://", "https://"))
    ours, others = read_headers(headers), read_headers(other_headers)
    if is_url:
        return Target(url=words[0], headers=ours, other_headers=others)
    return Target(command=words, headers=ours, other_headers=others)


def choose(globs: list[str] | None) -> list[Check]:
    """The checks whose ids fit one of the globs."""
    chosen = [check for check in CHECKS if not globs or any(fnmatch.fnmatchcase(check.id, glob) for glob in globs)]
    if not chosen:
        raise ValueError(f"no check has an id like {', '.join(map(repr, globs or []))}")
    return chosen
