"""What no store takes, whatever it keeps things in; and secrets that are not there yet."""

import secrets
from collections.abc import Mapping, Sequence

from raincheck.core.change import Change
from raincheck.core.durations import Sketch
from raincheck.core.records import Tool
from raincheck.core.text import check_name
from raincheck.errors import InvalidValue

SECRET_SIZE = 32


def check_named_once(changes: Sequence[Change]) -> None:
    """Refuse a commit that names a task twice, changed or spawned.

    Raises:
        InvalidValue: it would not be clear what holds.
    """
    ids = [change.before.id for change in changes]
    ids += [creation.task.id for change in changes for creation in change.spawned]
    if len(set(ids)) < len(ids):
        raise InvalidValue(f"a commit may name a task only once, not {sorted(ids)}")


def check_secret_name(name: str) -> None:
    """Refuse a name that no secret can have.

    Raises:
        InvalidValue: it can't be kept exactly as it is.
    """
    check_name(name, what="a secret's name")


def check_definitions(namespace: str, definitions: Mapping[Tool, bytes]) -> None:
    """Refuse definitions that can't be kept.

    Raises:
        InvalidValue: the namespace, or the name or version of a tool, can't be kept exactly as it is.
    """
    check_name(namespace, what="a namespace")
    for tool in definitions:
        check_name(tool.name, what="a tool's name")
        check_name(tool.version, what="a tool's version")


def check_news(namespace: str, news: Mapping[str, Sketch]) -> None:
    """Refuse durations that can't be kept.

    Raises:
        InvalidValue: the namespace, or the name of a tool, can't be kept exactly as it is.
    """
    check_name(namespace, what="a namespace")
    for tool in news:
        check_name(tool, what="a tool's name")


def new_secret() -> bytes:
    """Random bytes for a secret that is not there yet. Of several that are made at once, the store keeps one."""
    return secrets.token_bytes(SECRET_SIZE)
