"""Roles: the tools that the checks call, named for what they do. A file can assign tools to roles."""

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raincheck.conformance.connection import CommunicationError, is_object

ROLE_DESCRIPTIONS = {
    "quick": "returns the same result each time, immediately, and can be called with or without a task",
    "slow": "runs for a second or more, and can be cancelled",
    "tool_error": "ends with a result that has isError",
    "protocol_error": "ends with a JSON-RPC error",
    "asks": "asks the user one question (elicitation) and ends when it is answered",
    "samples": "asks the caller's model once (sampling) and ends when it is answered",
    "reports_progress": "runs for a second or more, and reports its progress several times",
    "plain": "can't be called as a task",
    "required": "can only be called as a task",
}
"""Every role, with a description of the tool that it needs."""


@dataclass(frozen=True)
class Role:
    """A tool, with the arguments to call it with."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    takes: float = 0.0
    """Approximate seconds that it runs, if it runs long."""

    answer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The answer to its elicitation: the fields of the form."""


Roles = Mapping[str, Role]

DEFAULT_ROLES: Roles = {
    "quick": Role("slow_compute", {"seconds": 0, "label": "quick"}),
    "slow": Role("slow_compute", {"seconds": 1.2, "label": "slow"}, takes=1.2),
    "tool_error": Role("failing_job"),
    "protocol_error": Role("protocol_error_job"),
    "asks": Role("confirm_delete", {"filename": "draft.txt"}, answer={"confirm": True}),
    "samples": Role("summarize", {"text": "It rained."}),
    "reports_progress": Role("count_up", {"to": 4}, takes=1.2),
    "plain": Role("greet", {"name": "Ada"}),
    "required": Role("failing_job"),
}
"""The tools of `examples/conformance.py`."""


def load_roles(file: Path) -> Roles:
    """Read roles from a TOML or JSON file. Roles that it does not mention keep their defaults.

    Raises:
        ValueError: the file does not define roles. The message states where and why.
        OSError: the file can't be read.
    """
    text = file.read_text(encoding="utf-8")
    try:
        data = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise ValueError(f"{file} is not {'JSON' if file.suffix == '.json' else 'TOML'}: {error}") from error
    try:
        return parse_roles(data)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def parse_roles(data: object) -> Roles:
    """Parse the contents of a roles file: for each role a tool's name, a table, or `false` for no tool."""
    if not is_object(data):
        raise ValueError("expected a table with an entry for each role")
    roles = dict(DEFAULT_ROLES)
    tables: dict[str, object] = {**data}
    check_role_names(tables)
    for name, table in tables.items():
        if table is False:
            roles.pop(name, None)
        else:
            roles[name] = _read_role(name, table)
    return roles


def check_role_names(names: Iterable[str]) -> None:
    """Reject names that are not roles.

    Raises:
        ValueError: a name is not a role. The message lists the roles.
    """
    for name in names:
        if name not in ROLE_DESCRIPTIONS:
            raise ValueError(f"there is no role {name!r}: the roles are {', '.join(ROLE_DESCRIPTIONS)}")


def check_tools_exist(roles: Roles, tools: Collection[str]) -> None:
    """Reject a tool that the user named for a role and that the server lacks: its checks would always be skipped.

    A server that lists no tools at all has another problem, which the checks report.

    Raises:
        CommunicationError: a tool is missing. The message names it.
    """
    for name, role in roles.items():
        if tools and role is not DEFAULT_ROLES.get(name) and role.tool not in tools:
            raise CommunicationError(f"the server has no tool {role.tool!r}, which is configured for the role {name!r}")


def _read_role(name: str, value: object) -> Role:
    if isinstance(value, str):
        return Role(value)
    if not is_object(value):
        raise ValueError(f"{name}: expected a tool's name, a table or false")
    table: dict[str, Any] = {**value}
    kinds: dict[str, tuple[type, ...]] = {
        "tool": (str,),
        "arguments": (dict,),
        "takes": (int, float),
        "answer": (dict,),
    }
    for key, entry in table.items():
        if key not in kinds:
            raise ValueError(f"{name}: unknown key {key!r}: the keys are {', '.join(kinds)}")
        if isinstance(entry, bool) or not isinstance(entry, kinds[key]):
            raise ValueError(f"{name}: {key} can't be {entry!r}")  # noqa: TRY004 - a file's error is a ValueError
    if "tool" not in table:
        raise ValueError(f"{name}: tool is missing")
    return Role(**table)
