"""The names of the tools by which callers without tasks go on with one."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Self

from raincheck.errors import ConfigurationError

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainTools:
    """What the tools are called that a server lists for callers without tasks, besides its own.

    Give them other names where these are taken, or where one host has several such servers and can't tell their tools
    apart: `Tasks(mcp, plain_tools=PlainTools.prefixed("reports_"))`.

    Raises:
        ConfigurationError: a tool can't be called like that.
    """

    wait: str = "task_wait"
    status: str = "task_status"
    result: str = "task_result"
    cancel: str = "task_cancel"
    answer: str = "task_answer"

    def __post_init__(self) -> None:
        for name in self:
            if not isinstance(name, str) or NAME.fullmatch(name) is None:  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
                raise ConfigurationError(
                    f"the name of a tool is made of 1 to 128 letters, digits and the signs _ - . and is not {name!r}"
                )
        if len(set(self)) < len(tuple(self)):
            raise ConfigurationError(f"five tools need five names, not {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(astuple(self))

    @classmethod
    def prefixed(cls, prefix: str) -> Self:
        """The usual names, each after the same prefix."""
        return cls(**{field: f"{prefix}{name}" for field, name in zip(cls.__slots__, cls(), strict=True)})

    def check_free(self, taken: Iterable[str]) -> None:
        """Refuse a server that has tools of these names.

        Raises:
            ConfigurationError: it says which, and what to do.
        """
        for name in taken:
            if name in self:
                raise ConfigurationError(
                    f"the server has a tool {name!r}, a name that is needed for callers without tasks: "
                    f'give the tool another name, or give plain_tools=PlainTools.prefixed("…_")'
                )
