"""The names of the tools with which callers without tasks follow a task."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Self

from raincheck.errors import ConfigurationError

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackTools:
    """The names of the tools that a server lists for callers without tasks, besides its own tools.

    Choose other names where these are taken, or where one host has several such servers and can't tell their tools
    apart: `Tasks(mcp, fallback_tools=FallbackTools.prefixed("reports_"))`.

    Raises:
        ConfigurationError: a name is not valid for a tool, or two names are equal.
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
        """Return the default names, each with the same prefix."""
        return cls(**{field: f"{prefix}{name}" for field, name in zip(cls.__slots__, cls(), strict=True)})

    def check_free(self, names: Iterable[str]) -> None:
        """Check that the server has no tools of these names.

        Raises:
            ConfigurationError: a name is taken. The error names the tool and the remedy.
        """
        for name in names:
            if name in self:
                raise ConfigurationError(
                    f"the server has a tool {name!r}, a name that is needed for callers without tasks: "
                    f'give the tool another name, or give fallback_tools=FallbackTools.prefixed("…_")'
                )
