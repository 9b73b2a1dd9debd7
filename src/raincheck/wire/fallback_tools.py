"""The names of the fallback tools, through which callers without tasks follow a task."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Self

from raincheck.errors import ConfigurationError

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackTools:
    """The names of the tools that a server lists for callers without tasks, besides its own tools.

    Choose other names if the server uses these, or if a host connects to several such servers and can't tell their
    tools apart: `Tasks(mcp, fallback_tools=FallbackTools.prefixed("reports_"))`.

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
            if not isinstance(name, str) or NAME.fullmatch(name) is None:  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be type-checked
                raise ConfigurationError(
                    f"{name!r} is not a valid tool name: use 1 to 128 letters, digits and the characters _ - ."
                )
        if len(set(self)) < len(tuple(self)):
            raise ConfigurationError(f"the five fallback tools need five different names, not {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return iter(astuple(self))

    @classmethod
    def prefixed(cls, prefix: str) -> Self:
        """Return the default names, each with the same prefix."""
        return cls(**{field: f"{prefix}{name}" for field, name in zip(cls.__slots__, cls(), strict=True)})

    def check_free(self, names: Iterable[str]) -> None:
        """Check that the server has no tools of these names.

        Raises:
            ConfigurationError: the server has a tool of one of these names. The error names the tool and the remedy.
        """
        for name in names:
            if name in self:
                raise ConfigurationError(
                    f"the server's tool {name!r} has the name of a fallback tool for callers without tasks: "
                    f'rename the tool, or pass fallback_tools=FallbackTools.prefixed("…_")'
                )
