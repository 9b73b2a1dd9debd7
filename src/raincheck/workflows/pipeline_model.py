"""What files may say of pipelines and of their steps."""

from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from raincheck.workflows.action_model import ActionModel, refused
from raincheck.workflows.common_model import Duration, Model, Name, Value, WorkflowModel


def _known_answer(value: object) -> object:
    if isinstance(value, dict) or value in ("fail", "continue"):
        return cast("object", value)
    raise PydanticCustomError("on_error", "it must be fail, continue, or {example}", {"example": "{compensate: ID}"})


class CompensateModel(Model):
    """What undoes the step, if the pipeline fails later."""

    compensate: Name


class StepModel(ActionModel):
    """A step of a pipeline."""

    id: Name
    needs: list[Name] | None = None
    """The step before it in the list, unless they are named; `[]` begins at once."""
    condition: Annotated[str | bool | None, Field(alias="if")] = None
    for_each: str | list[Any] | None = None
    max_parallel: Annotated[int, Field(ge=1, le=100)] | None = None
    min_success_rate: Annotated[float, Field(ge=0, le=1)] = 1.0
    until: str | None = None
    max_rounds: Annotated[int, Field(ge=1, le=1_000)] | None = None
    every: Duration = 0.0
    on_error: Annotated[Literal["fail", "continue"] | CompensateModel, BeforeValidator(_known_answer)] = "fail"

    @model_validator(mode="after")
    def _has_what_belongs_together(self) -> "StepModel":
        if self.until is not None and self.max_rounds is None:
            raise refused("`until` needs `max_rounds`, so that it ends")
        if self.until is None and not self.model_fields_set.isdisjoint({"max_rounds", "every"}):
            raise refused("`max_rounds` and `every` are for `until`, which is not there")
        if self.for_each is None and not self.model_fields_set.isdisjoint({"max_parallel", "min_success_rate"}):
            raise refused("`max_parallel` and `min_success_rate` are for `for_each`, which is not there")
        return self


class PipelineModel(WorkflowModel):
    """A pipeline: steps, each of which begins when those it needs have ended."""

    max_parallel: Annotated[int, Field(ge=1, le=100)] = 4
    """Steps side by side."""
    steps: Annotated[list[StepModel], Field(min_length=1, max_length=500)]
    output: Value = None
    """The result of the last step, unless it is given."""
