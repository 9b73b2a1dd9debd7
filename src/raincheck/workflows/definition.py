"""What every workflow is to those who serve, list or start it: a pipeline or a state machine."""

from collections.abc import Mapping
from typing import Protocol

from raincheck.core.payload import Json
from raincheck.engine.tools import TaskTool


class Definition(Protocol):
    """A workflow that can be run."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def description(self) -> str | None: ...

    @property
    def input_schema(self) -> Mapping[str, Json]:
        """The JSON Schema of its arguments."""
        ...

    def tool(self) -> TaskTool:
        """What runs its tasks."""
        ...
