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
        for chain in sorted(paths):
            if chain[0] == "env" and "env" not in self.roots:
                yield "env can't be used here, which must be the same after a restart: take it from a `set` step"
            elif chain[0] not in self.roots:
                yield f"there is no name {chain[0]!r} here: there is {', '.join(sorted(self.roots))}"
            elif chain[0] == "input":
                yield from self._input(chain)
            elif chain[0] == "env":
                yield from self._env(chain)
            elif chain[0] == "steps":
                yield from self._step(chain)

    def _input(self, chain: NamePath) -> Iterator[str]:
        if len(chain) > 1 and chain[1] not in self.inputs and chain[1] not in ("get", "items", "keys", "values"):
            yield f"there is no input {chain[1]!r}: there is {', '.join(sorted(self.inputs)) or 'none'}"

    def _env(self, chain: NamePath) -> Iterator[str]:
        if len(chain) < 2:
            yield "name the variable, as in env.HOME"
        elif chain[1] not in self.env:
            yield f"the variable {chain[1]} is not allowed: add it to `allow.env`"

    def _step(self, chain: NamePath) -> Iterator[str]:
        if len(chain) < 2:
            yield "name the step, as in steps.build.result"
        elif chain[1] not in self.steps:
            yield f"there is no step {chain[1]!r}: there is {', '.join(sorted(self.steps))}"
        elif chain[1] == self.step:
            yield f"step {chain[1]!r} has not ended by then: others may use what comes of it, and `until` has `result`"
        elif chain[1] in self.after:
            yield f"step {chain[1]!r} begins when this one has ended: move it up, and name what it needs"
        elif chain[1] not in self.before:
            yield f"step {chain[1]!r} need not have ended by then: add it to `needs`"
        elif len(chain) > 2 and chain[2] not in STEP_FIELDS:
            near = difflib.get_close_matches(chain[2], STEP_FIELDS, n=1)
            meant = near[0] if near else f"result.{chain[2]}"
            fields = ", ".join(sorted(STEP_FIELDS))
            yield f"a step has {fields}, not {chain[2]!r}: did you mean steps.{chain[1]}.{meant}?"


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
        parsed = TextTemplate.parse(text)
    except InvalidExpression as error:
        yield str(error)
    else:
        yield from names.check(frozenset[NamePath]().union(*(one.paths for one in parsed.expressions)))
