"""Check that the names in an expression exist, and have a value when the expression is evaluated."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from raincheck.workflows.expressions.template import Expression, InvalidExpression, NamePath, TextTemplate

STEP_FIELDS = frozenset({"status", "result", "error", "failed"})
"""The fields of a step that expressions can read."""


@dataclass(frozen=True)
class AllowedNames:
    """The names that an expression may use."""

    inputs: frozenset[str]
    steps: frozenset[str]
    """All steps of the pipeline."""
    before: frozenset[str]
    """The steps that have ended when the expression is evaluated."""
    env: frozenset[str]
    step: str | None = None
    """The step that the expression belongs to."""
    after: frozenset[str] = frozenset()
    """The steps that start after this one has ended."""
    roots: frozenset[str] = frozenset({"input", "steps", "env"})

    def with_roots(self, *names: str) -> "AllowedNames":
        return replace(self, roots=self.roots | set(names))

    def without_roots(self, *names: str) -> "AllowedNames":
        return replace(self, roots=self.roots - set(names))

    def for_step(
        self, before: frozenset[str], step: str | None = None, after: frozenset[str] = frozenset()
    ) -> "AllowedNames":
        """Return the names for an expression of this step, with the steps before and after it."""
        return replace(self, before=before, step=step, after=after)

    def check(self, paths: frozenset[NamePath]) -> Iterator[str]:
        """Yield the errors in the name paths of an expression."""
        for path in sorted(paths):
            if path[0] == "env" and "env" not in self.roots:
                yield "env can't be used here, as the value must be the same after a restart: read it in a `set` step"
            elif path[0] not in self.roots:
                yield f"there is no name {path[0]!r} here: use one of {', '.join(sorted(self.roots))}"
            elif path[0] == "input":
                yield from self._input(path)
            elif path[0] == "env":
                yield from self._env(path)
            elif path[0] == "steps":
                yield from self._step(path)

    def _input(self, path: NamePath) -> Iterator[str]:
        if len(path) > 1 and path[1] not in self.inputs and path[1] not in ("get", "items", "keys", "values"):
            yield f"there is no input {path[1]!r}: the inputs are {', '.join(sorted(self.inputs)) or 'none'}"

    def _env(self, path: NamePath) -> Iterator[str]:
        if len(path) < 2:
            yield "name the variable, as in env.HOME"
        elif path[1] not in self.env:
            yield f"the variable {path[1]} is not allowed: add it to `allow.env`"

    def _step(self, path: NamePath) -> Iterator[str]:
        if len(path) < 2:
            yield "name the step, as in steps.build.result"
        elif path[1] not in self.steps:
            yield f"there is no step {path[1]!r}: the steps are {', '.join(sorted(self.steps))}"
        elif path[1] == self.step:
            yield f"step {path[1]!r} has not ended here: only other steps can use its result, and `until` has `result`"
        elif path[1] in self.after:
            yield f"step {path[1]!r} starts after this one has ended: move it up, and declare what it needs"
        elif path[1] not in self.before:
            yield f"step {path[1]!r} may not have ended here: add it to `needs`"
        elif len(path) > 2 and path[2] not in STEP_FIELDS:
            near = difflib.get_close_matches(path[2], STEP_FIELDS, n=1)
            suggestion = near[0] if near else f"result.{path[2]}"
            fields = ", ".join(sorted(STEP_FIELDS))
            yield f"a step has {fields}, not {path[2]!r}: did you mean steps.{path[1]}.{suggestion}?"


def check_expression(text: str, names: AllowedNames) -> Iterator[str]:
    """Yield the errors of an expression."""
    try:
        expression = Expression.parse(text)
    except InvalidExpression as error:
        yield str(error)
    else:
        yield from names.check(expression.paths)


def check_text(text: str, names: AllowedNames) -> Iterator[str]:
    """Yield the errors of a text that may contain expressions."""
    try:
        template = TextTemplate.parse(text)
    except InvalidExpression as error:
        yield str(error)
    else:
        yield from names.check(frozenset[NamePath]().union(*(expression.paths for expression in template.expressions)))
