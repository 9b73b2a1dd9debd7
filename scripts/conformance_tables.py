"""Tables of the 2025-11-25 conformance suite for the docs: its checks and its roles."""

import json
from collections import Counter
from collections.abc import Callable, Iterator

from raincheck.conformance.checks import CHECKS, TOPICS
from raincheck.conformance.requirements import RequirementLevel
from raincheck.conformance.roles import DEFAULT_ROLES, ROLE_DESCRIPTIONS


def v2025_checks() -> str:
    """Return the tables of all checks, by topic."""
    return "\n\n".join(_topics())


def _topics() -> Iterator[str]:
    for topic, checks in TOPICS.items():
        rows = [f"| `{check.id}` | {check.level} | {check.requirement} | {check.section} |" for check in checks]
        yield "\n".join(
            [f"## {topic}", "", "| check | level | requirement | section |", "| --- | --- | --- | --- |", *rows]
        )


def v2025_counts() -> str:
    """Return the number of checks of each level."""
    counts = Counter(check.level for check in CHECKS)
    return f"{len(CHECKS)} checks: {', '.join(f'{counts[level]} {level}' for level in RequirementLevel)}."


def v2025_roles() -> str:
    """Return the table of all roles, with what their tools do and the default tool of each."""
    rows = [f"| `{role}` | {description} | {_default(role)} |" for role, description in ROLE_DESCRIPTIONS.items()]
    return "\n".join(["| role | what its tool does | default |", "| --- | --- | --- |", *rows])


def _default(role: str) -> str:
    role_tool = DEFAULT_ROLES[role]
    arguments = f" `{json.dumps(dict(role_tool.arguments))}`" if role_tool.arguments else ""
    return f"`{role_tool.tool}`{arguments}"


PARTS: dict[str, Callable[..., str]] = {
    "v2025-checks": v2025_checks,
    "v2025-counts": v2025_counts,
    "v2025-roles": v2025_roles,
}
