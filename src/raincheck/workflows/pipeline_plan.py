"""Which step of a pipeline comes before which."""

from collections.abc import Mapping
from dataclasses import dataclass

from raincheck.workflows.pipeline_model import CompensateModel, PipelineModel


@dataclass(frozen=True)
class Plan:
    """The order of the steps. Those that undo others are no part of it: they run if the pipeline fails."""

    order: tuple[str, ...]
    """The steps as the file has them."""
    needs: Mapping[str, tuple[str, ...]]
    undoes: Mapping[str, str]
    """What undoes a step, by the step."""
    before: Mapping[str, frozenset[str]]
    """All that has ended when a step begins. Whoever undoes something may use every step."""

    @classmethod
    def of(cls, model: PipelineModel) -> "Plan":
        """The plan. Needs that are unknown or go round in a circle lead nowhere in it: they are found elsewhere."""
        undoes = {one.id: one.on_error.compensate for one in model.steps if isinstance(one.on_error, CompensateModel)}
        order = tuple(one.id for one in model.steps if one.id not in undoes.values())
        steps = {one.id: one for one in model.steps}
        needs: dict[str, tuple[str, ...]] = {}
        for place, step_id in enumerate(order):
            said = steps[step_id].needs
            needs[step_id] = tuple(dict.fromkeys(order[max(place - 1, 0) : place] if said is None else said))
        before = {one: _before(one, needs) for one in order}
        before |= {one: frozenset(order) for one in undoes.values()}
        return cls(order, needs, undoes, before)

    def cycle(self) -> tuple[str, ...] | None:
        """Steps that need each other in a circle, the first of them at both ends."""
        done: set[str] = set()
        for start in self.order:
            found = self._cycle_from(start, [], done)
            if found is not None:
                return found
        return None

    def _cycle_from(self, step: str, way: list[str], done: set[str]) -> tuple[str, ...] | None:
        if step in way:
            return (*way[way.index(step) :], step)
        if step in done:
            return None
        for need in self.needs.get(step, ()):
            found = self._cycle_from(need, [*way, step], done)
            if found is not None:
                return found
        done.add(step)
        return None


def _before(step: str, needs: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    found: set[str] = set()
    left = list(needs[step])
    while left:
        one = left.pop()
        if one not in found and one in needs:
            found.add(one)
            left += needs[one]
    return frozenset(found)
