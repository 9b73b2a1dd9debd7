"""Steps that put values together."""

from raincheck.core.payload import Json
from raincheck.workflows.action import Occasion
from raincheck.workflows.expressions import Template
from raincheck.workflows.surroundings import Surroundings


class Set:
    """A value. That is its result."""

    waits = False
    words = "set"

    def __init__(self, value: Json, surroundings: Surroundings) -> None:
        self._value = Template.parse(value)
        self._surroundings = surroundings

    async def perform(self, occasion: Occasion) -> Json:
        return self._value.render(occasion.within(self._surroundings.variables()))
