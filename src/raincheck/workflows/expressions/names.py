"""Whether the names that expressions use are there, and will be when they are worked out."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from raincheck.workflows.expressions.template import Chain, Expression, InvalidExpression, Text

SEEN = frozenset({"status", "result", "error", "failed"})
"""What expressions see of a step."""


@dataclass(frozen=True)
class Names:
    """The names that an expression may use."""

    inputs: frozenset[str]
    steps: frozenset[str]
    """All of the pipeline."""
    before: frozenset[str]
    """Those that have ended by then."""
    env: frozenset[str]
    step: str | None = None
    """The one that uses them."""
    after: frozenset[str] = frozenset()
    """Those that begin when it has ended."""
    roots: frozenset[str] = frozenset({"input", "steps", "env"})

    def adding(self, *names: str) -> "Names":
        return replace(self, roots=self.roots | set(names))

    def without(self, *names: str) -> "Names":
        return replace(self, roots=self.roots - set(names))

    def at(self, before: frozenset[str], step: str | None = None, after: frozenset[str] = frozenset()) -> "Names":
        """Those at a place that some steps come before, and others after; it is of this step."""
        return replace(self, before=before, step=step, after=after)

    def findings(self, paths: frozenset[Chain]) -> Iterator[str]:
        """What is wrong with what an expression takes."""
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

    def _input(self, chain: Chain) -> Iterator[str]:
        if len(chain) > 1 and chain[1] not in self.inputs and chain[1] not in ("get", "items", "keys", "values"):
            yield f"there is no input {chain[1]!r}: there is {', '.join(sorted(self.inputs)) or 'none'}"

    def _env(self, chain: Chain) -> Iterator[str]:
        if len(chain) < 2:
            yield "name the variable, as in env.HOME"
        elif chain[1] not in self.env:
            yield f"the variable {chain[1]} is not allowed: add it to `allow.env`"

    def _step(self, chain: Chain) -> Iterator[str]:
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
        elif len(chain) > 2 and chain[2] not in SEEN:
            near = difflib.get_close_matches(chain[2], SEEN, n=1)
            meant = near[0] if near else f"result.{chain[2]}"
            yield f"a step has {', '.join(sorted(SEEN))}, not {chain[2]!r}: did you mean steps.{chain[1]}.{meant}?"


def check_expression(text: str, names: Names) -> Iterator[str]:
    """What is wrong with an expression."""
    try:
        expression = Expression.parse(text)
    except InvalidExpression as error:
        yield str(error)
    else:
        yield from names.findings(expression.paths)


def check_text(text: str, names: Names) -> Iterator[str]:
    """What is wrong with a text that may have expressions in it."""
    try:
        parsed = Text.parse(text)
    except InvalidExpression as error:
        yield str(error)
    else:
        yield from names.findings(frozenset[Chain]().union(*(one.paths for one in parsed.expressions)))
