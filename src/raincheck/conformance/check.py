"""The class of a check, and the decorator of a topic that makes a check from a function.

A check names its needs: tools for roles, capabilities, circumstances. If one is missing, the check is skipped, with a
reason.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.connection import shorten
from raincheck.conformance.requirements import RequirementLevel
from raincheck.conformance.roles import ROLE_DESCRIPTIONS

CheckBody = Callable[[ConformanceClient], Awaitable[None]]

MUST, MUST_NOT, SHOULD, SHOULD_NOT = RequirementLevel


@dataclass(frozen=True)
class Check:
    """One requirement, and the function that tests whether a server meets it."""

    id: str
    level: RequirementLevel
    section: str
    """Where the specification states it: a heading of its page on tasks, or another page and its heading."""

    requirement: str
    """The requirement, in one sentence."""

    needs: tuple[str, ...]
    """Roles, capabilities and other circumstances without which the check is skipped."""

    body: CheckBody


class Topic:
    """A group of checks, in the order in which they are defined and run."""

    def __init__(self, title: str, section: str, *needs: str) -> None:
        """`section` and `needs` are those of most checks of the topic."""
        self.title = title
        self.checks: list[Check] = []
        self._section = section
        self._needs = needs

    def check(
        self, level: RequirementLevel, id: str, *needs: str, section: str | None = None, requirement: str | None = None
    ) -> Callable[[CheckBody], Check]:
        """Make a check from a function that raises `RequirementNotMet` if the server does not meet the requirement.

        The requirement is the docstring of the function, unless it is given. `needs` are those beside the topic's.
        """

        def make(body: CheckBody) -> Check:
            text = requirement or body.__doc__ or ""
            check = Check(id, level, section or self._section, text, (*self._needs, *needs), body)
            self.checks.append(check)
            return check

        return make


ALLOWED = {"plain": ("forbidden",), "required": ("required",)}
"""The `execution.taskSupport` that the tool of a role must have. Tools of other roles must allow tasks."""

NO_TOOL_PREFIX = "needs a tool that"
"""Start of the skip reason of a check that has no tool to call."""

_CAPABILITIES = {"calls": ("requests", "tools", "call"), "list": ("list",), "cancel": ("cancel",)}
"""The capability that a need stands for. `no list` needs a server that does not declare it."""

_CIRCUMSTANCES: dict[str, tuple[Callable[[ConformanceClient], bool], str]] = {
    "http": (lambda caller: caller.target.is_http, "is about HTTP"),
    "headers": (lambda caller: bool(caller.target.headers), "needs a caller that the server can identify (--header)"),
    "no headers": (lambda caller: not caller.target.headers, "is about callers that the server can't identify"),
    "other": (lambda caller: bool(caller.target.other_headers), "needs a second caller (--other-header)"),
}


def skip_reason(caller: ConformanceClient, needs: Iterable[str]) -> str | None:
    """Return why a check with these needs can't run on this server, or `None` if it can."""
    return next((reason for need in needs if (reason := _missing_need(caller, need)) is not None), None)


def has_role(caller: ConformanceClient, role: str) -> bool:
    """Return whether the server has a tool for a role."""
    return _missing_need(caller, role) is None


def _missing_need(caller: ConformanceClient, need: str) -> str | None:
    """Return why a need is not met, or `None` if it is."""
    if need in _CIRCUMSTANCES:
        is_met, reason = _CIRCUMSTANCES[need]
        return None if is_met(caller) else reason
    if path := _CAPABILITIES.get(need.removeprefix("no ")):
        is_declared = _declares(caller, *path)
        reason = f"tasks.{'.'.join(path)} is {'declared' if is_declared else 'not declared'}"
        return reason if is_declared == need.startswith("no ") else None
    missing = f"{NO_TOOL_PREFIX} {ROLE_DESCRIPTIONS[need]} (role {need!r})"
    role = caller.roles.get(need)
    if role is None:
        return missing
    if role.tool not in caller.tools:
        return f"{missing}; there is no tool {role.tool!r}"
    # Without the capability no call can be a task, even if the tools declare task support.
    support = caller.task_support(role.tool)
    if _declares(caller, "requests", "tools", "call") and support not in ALLOWED.get(need, ("optional", "required")):
        return f"{missing}; execution.taskSupport of {role.tool!r} is {shorten(support)}"
    return None


def _declares(caller: ConformanceClient, *path: str) -> bool:
    return caller.capability("tasks", *path) is not None
