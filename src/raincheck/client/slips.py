"""Slips: what it takes to find a task again, after a crash or on another day."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, get_args

from raincheck.errors import InvalidValue

TierName = Literal["2026-07-28", "2025-11-25", "plain"]
"""How a task is talked about: in the words of a version of the protocol, or with tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """A task of a server.

    It holds no password and no token: who has it needs to be let in by the server all the same. A server that lets
    in everybody tells callers apart by nothing else than the ids that they have, so keep it as you would keep those.
    """

    server: str
    """The server's address, or the command that runs it."""
    task_id: str
    tool: str
    tier: TierName
    tools: dict[str, str] = field(default_factory=dict[str, str])
    """The names of the tools that go on with the task, for a caller without tasks."""
    taken_at: str = ""
    """When the caller got it, by its own clock."""

    def dump(self) -> str:
        """The slip as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def load(cls, text: str) -> Self:
        """The slip that `dump` made this text of.

        Raises:
            InvalidValue: it did not.
        """
        try:
            slip = cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{text[:80]!r} is no slip of a task: {error}") from error
        tools: Any = slip.tools
        values = [slip.server, slip.task_id, slip.tool, slip.taken_at]
        if isinstance(tools, dict):
            values += [*slip.tools, *slip.tools.values()]
        is_text = all(isinstance(value, str) for value in values)  # pyright: ignore[reportUnnecessaryIsInstance] - of JSON
        if slip.tier not in get_args(TierName) or not isinstance(tools, dict) or not is_text:
            raise InvalidValue(f"{text[:80]!r} is no slip of a task that this version can read")
        return slip
