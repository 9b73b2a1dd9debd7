"""The conformance suite as tables for the docs: its checks, and the roles that tools play in it."""

import json
from collections import Counter
from collections.abc import Callable, Iterator

from raincheck.conformance.checks import CHECKS, TOPICS
from raincheck.conformance.outcome import RequirementLevel
from raincheck.conformance.roles import DEFAULT_ROLES, ROLE_DESCRIPTIONS


def g1_checks() -> str:
    """Every check, by what it is about."""
    return "\n\n".join(_topics())


def _topics() -> Iterator[str]:
    for topic, checks in TOPICS.items():
        rows = [f"| `{check.id}` | {check.level} | {check.requirement} | {check.section} |" for check in checks]
        yield "\n".join(
            [f"## {topic}", "", "| check | level | requirement | section |", "| --- | --- | --- | --- |", *rows]
        )


def g1_counts() -> str:
    """How many checks there are of each level."""
    counts = Counter(check.level for check in CHECKS)
    return f"{len(CHECKS)} checks: {', '.join(f'{counts[level]} {level}' for level in RequirementLevel)}."


def g1_roles() -> str:
    """Every role, what its tool does, and which tool plays it if nothing is said."""
    rows = [f"| `{role}` | {meaning} | {_default(role)} |" for role, meaning in ROLE_DESCRIPTIONS.items()]
    return "\n".join(["| role | what its tool does | default |", "| --- | --- | --- |", *rows])


def _default(role: str) -> str:
    played = DEFAULT_ROLES[role]
    arguments = f" `{json.dumps(dict(played.arguments))}`" if played.arguments else ""
    return f"`{played.tool}`{arguments}"


PARTS: dict[str, Callable[..., str]] = {"g1-checks": g1_checks, "g1-counts": g1_counts, "g1-roles": g1_roles}
