"""What the steps of a pipeline came to in an earlier run: read from the checkpoints of its task."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from raincheck.core.payload import Json
from raincheck.workflows.doing import Tried
from raincheck.workflows.pipeline import Pipeline

CHECKPOINT = re.compile(r"(?P<step>[\w-]+)(\[(?P<index>\d+)\])?( round (?P<round>\d+))?( try (?P<try>\d+))?")
"""What checkpoints are called: a step, of `for_each` one of its items, which round, and which try in that."""


@dataclass(slots=True)
class _Recorded:
    """What is known of a step: the last outcome, of each item if there are several."""

    last: dict[int | None, tuple[tuple[int, int], Tried]] = field(
        default_factory=dict[int | None, tuple[tuple[int, int], Tried]]
    )

    def add(self, index: int | None, place: tuple[int, int], outcome: Tried) -> None:
        if index not in self.last or self.last[index][0] < place:
            self.last[index] = place, outcome

    @property
    def results(self) -> list[Json]:
        return [self.last[index][1].result for index in sorted(self.last, key=lambda one: -1 if one is None else one)]

    @property
    def is_ok(self) -> bool:
        return all(outcome.is_ok for _, outcome in self.last.values())


def find_restorable(pipeline: Pipeline, step: str, checkpoints: Mapping[str, Json]) -> dict[str, Json]:
    """The results that a run which begins with a step need not work out anew: of all that does not come after it.

    Of a step with items or rounds nobody can tell by its checkpoints alone whether there were to be more. It is done if
    something has begun that needs it.
    """
    recorded = _recorded(checkpoints)
    found: dict[str, Json] = {}
    for one in pipeline.plan.order:
        comes_later = one == step or step in pipeline.before(one)
        # What came of a step that was undone is gone.
        is_undone = pipeline.plan.undoes.get(one) in recorded
        if comes_later or is_undone or one not in recorded:
            continue
        model = pipeline.steps[one].model
        is_over = (model.for_each is None and model.until is None) or any(
            one in pipeline.before(other) for other in recorded if other in pipeline.plan.order
        )
        if model.for_each is not None and is_over:
            found[one] = recorded[one].results
        elif is_over and recorded[one].is_ok:
            found[one] = recorded[one].results[0]
    return found


def _recorded(checkpoints: Mapping[str, Json]) -> dict[str, _Recorded]:
    found: dict[str, _Recorded] = {}
    for name, value in checkpoints.items():
        parts = CHECKPOINT.fullmatch(name)
        # Others have no name of a step, or are not what a step records.
        if parts is None or not isinstance(value, Mapping) or set(value) not in ({"ok"}, {"error"}):
            continue
        index = None if parts["index"] is None else int(parts["index"])
        place = int(parts["round"] or 1), int(parts["try"] or 1)
        found.setdefault(parts["step"], _Recorded()).add(index, place, Tried.of(cast("Json", value)))
    return found
