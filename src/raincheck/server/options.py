"""How the tasks of a server are kept, run and served."""

from dataclasses import dataclass
from os import PathLike
from typing import get_args

from raincheck.clock import Clock
from raincheck.core.text import check_name
from raincheck.engine import Settings
from raincheck.engine.tool_checks import check_kind, check_seconds
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.opening import check_store_name
from raincheck.server.owners import Anonymous, OwnerFunction
from raincheck.wire.plain_tools import PlainTools

PLAIN_WAIT = 45.0
"""Seconds: hosts give up after about a minute."""

LONGEST_PLAIN_WAIT = 3_600.0
"""Seconds, for hosts that were told to wait longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the author of a server has said. `Tasks` says what each of it means.

    Raises:
        ConfigurationError: it can't be like that.
    """

    store: str | PathLike[str] | None
    namespace: str
    settings: Settings
    clock: Clock
    works: bool
    owner: OwnerFunction | None
    anonymous: Anonymous
    plain_wait: float | None
    plain_tools: PlainTools

    def __post_init__(self) -> None:
        check_store_name(self.store)
        check_kind("works", self.works, bool)
        check_kind("settings", self.settings, Settings)
        check_kind("plain_tools", self.plain_tools, PlainTools)
        check_kind("namespace", self.namespace, str)
        if self.owner is not None and not callable(self.owner):
            raise ConfigurationError(f"owner is a function that says whose a request is, not {self.owner!r}")
        if self.anonymous not in get_args(Anonymous):
            raise ConfigurationError(f'anonymous is "id" or "session", not {self.anonymous!r}')
        if self.plain_wait is not None:
            check_seconds("plain_wait", self.plain_wait, least=0.1, most=LONGEST_PLAIN_WAIT)
        try:
            check_name(self.namespace, what="a namespace")
        except InvalidValue as error:
            raise ConfigurationError(str(error)) from error
