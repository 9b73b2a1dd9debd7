"""What a check is, and the decorator that makes one of a function.

What a check needs of a server, and the reason to leave it out where that is not there.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from raincheck.conformance.caller import Caller
from raincheck.conformance.messages import shorten
from raincheck.conformance.outcome import Level
from raincheck.conformance.roles import MEANINGS

Body = Callable[[Caller], Awaitable[None]]


@dataclass(frozen=True)
class Check:
    """One requirement, and how to see whether a server keeps it."""

    id: str
    level: Level
    section: str
    """Where the specification says so: the heading of its page on tasks, or another page and its heading."""

    sentence: str
    """What is required, in a sentence."""

    needs: tuple[str, ...]
    """Roles, capabilities and other circumstances without which there is nothing to check."""

    body: Body


def check(id: str, level: Level, section: str, sentence: str, *needs: str) -> Callable[[Body], Check]:
    """Make a check of a function that raises `Unmet` where the server does not keep the requirement."""

    def make(body: Body) -> Check:
        return Check(id, level, section, sentence, needs, body)

    return make


ALLOWED = {"plain": ("forbidden",), "required": ("required",)}
"""What `execution.taskSupport` the tool of a role has; the others allow tasks."""

NO_TOOL = "needs a tool that"
"""How the reason begins of a check that has none to call."""

_CIRCUMSTANCES: dict[str, tuple[Callable[[Caller], bool], str]] = {
    "calls": (
        lambda caller: _declares(caller, "requests", "tools", "call"),
        "tasks.requests.tools.call is not declared",
    ),
    "no calls": (
        lambda caller: not _declares(caller, "requests", "tools", "call"),
        "tasks.requests.tools.call is declared",
    ),
    "list": (lambda caller: _declares(caller, "list"), "tasks.list is not declared"),
    "no list": (lambda caller: not _declares(caller, "list"), "tasks.list is declared"),
    "cancel": (lambda caller: _declares(caller, "cancel"), "tasks.cancel is not declared"),
    "no cancel": (lambda caller: not _declares(caller, "cancel"), "tasks.cancel is declared"),
    "http": (lambda caller: caller.target.is_http, "is about HTTP"),
    "headers": (lambda caller: bool(caller.target.headers), "needs a caller that can be told from others (--header)"),
    "no headers": (lambda caller: not caller.target.headers, "is about callers that can't be told apart"),
    "other": (lambda caller: bool(caller.target.other_headers), "needs a second caller (--other-header)"),
}


def why_not(caller: Caller, needs: Iterable[str]) -> str | None:
    """Why a check that needs this can't be done here, or `None` if it can."""
    return next((reason for need in needs if (reason := _why_not(caller, need)) is not None), None)


def has(caller: Caller, role: str) -> bool:
    """Whether the server has a tool for a role."""
    return _why_not(caller, role) is None


def _why_not(caller: Caller, need: str) -> str | None:
    if need not in MEANINGS:
        holds, otherwise = _CIRCUMSTANCES[need]
        return None if holds(caller) else otherwise
    wanted = f"{NO_TOOL} {MEANINGS[need]} (role {need!r})"
    role = caller.roles.get(need)
    if role is None:
        return wanted
    if role.tool not in caller.tools:
        return f"{wanted}; there is no tool {role.tool!r}"
    # Without the capability nothing can be a task, whatever the tools say.
    support = caller.support(role.tool)
    if _declares(caller, "requests", "tools", "call") and support not in ALLOWED.get(need, ("optional", "required")):
        return f"{wanted}; execution.taskSupport of {role.tool!r} is {shorten(support)}"
    return None


def _declares(caller: Caller, *path: str) -> bool:
    return caller.capability("tasks", *path) is not None
