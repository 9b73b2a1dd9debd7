"""Values with expressions in them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from jinja2 import nodes
from jinja2.exceptions import TemplateError

from raincheck.core.payload import Json
from raincheck.workflows.budget import TEXT_LIMIT
from raincheck.workflows.expression import (
    SANDBOX,
    TOO_DEEP,
    Chain,
    Expression,
    ExpressionFailed,
    InvalidExpression,
    Scope,
)
from raincheck.workflows.sandbox import text_of

__all__ = ["Chain", "Expression", "ExpressionFailed", "InvalidExpression", "Scope", "Template", "Text", "is_open"]


def is_open(text: str) -> bool:
    """Whether there are expressions in a text, so that it is not known yet what it will be."""
    return "{{" in text


@dataclass(frozen=True)
class Text:
    """A text with expressions in it."""

    parts: tuple[str | Expression, ...]

    @classmethod
    def parse(cls, text: str) -> "Text":
        """Text in which `{{ … }}` is an expression.

        Raises:
            InvalidExpression: it is not written right.
        """
        if "{{" not in text and "{%" not in text and "{#" not in text:
            return cls((text,))
        try:
            kinds = {kind for _, kind, _ in SANDBOX.lex(text)}
            if not kinds.isdisjoint({"block_begin", "comment_begin", "raw_begin"}):
                raise InvalidExpression("only {{ … }} is taken here: for the characters {% or {#, write {{ '{%' }}")
            parsed = SANDBOX.parse(text)
        except TemplateError as error:
            is_open = "unexpected end of template" in (error.message or "")
            why = "a {{ is not closed: add }}" if is_open else error.message
            raise InvalidExpression(f"{text!r}: {why}") from error
        except TOO_DEEP as error:
            raise InvalidExpression("this expression is nested too deep") from error
        return cls(tuple(_parts(parsed, text)))

    @property
    def expressions(self) -> Iterator[Expression]:
        return (part for part in self.parts if isinstance(part, Expression))

    @property
    def is_typed(self) -> bool:
        """Whether it is one expression and nothing else, so that it has that expression's type."""
        return len(self.parts) == 1 and isinstance(self.parts[0], Expression)

    def render(self, scope: Scope) -> Json:
        if self.is_typed:
            return cast("Expression", self.parts[0]).evaluate(scope)
        texts = [part if isinstance(part, str) else _inserted(part, scope) for part in self.parts]
        size = sum(map(len, texts))
        if size > TEXT_LIMIT:
            raise ExpressionFailed(f"a text is too large: {size:,} characters, and {TEXT_LIMIT:,} are allowed")
        return "".join(texts)


def _parts(parsed: nodes.Template, text: str) -> Iterator[str | Expression]:
    for output in parsed.body:
        for node in cast("nodes.Output", output).nodes:
            yield node.data if isinstance(node, nodes.TemplateData) else Expression(node, text)


def _inserted(part: Expression, scope: Scope) -> str:
    try:
        return text_of(part.evaluate(scope))
    except TypeError as error:
        raise ExpressionFailed(f"{part.source!r}: {error}") from error


class Template:
    """A JSON value whose texts may have expressions in them."""

    def __init__(self, value: Json, texts: Mapping[str, Text]) -> None:
        self.value = value
        self._texts = texts

    @classmethod
    def parse(cls, value: Json) -> "Template":
        """A value from a file.

        Raises:
            InvalidExpression: a text in it is not written right.
        """
        return cls(value, {text: Text.parse(text) for text in set(_texts(value))})

    @cached_property
    def paths(self) -> frozenset[Chain]:
        """All that its expressions take."""
        found = (expression.paths for text in self._texts.values() for expression in text.expressions)
        return frozenset[Chain]().union(*found)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that its expressions begin from."""
        return frozenset(chain[0] for chain in self.paths)

    def render(self, scope: Scope) -> Json:
        """The value with everything worked out.

        Raises:
            ExpressionFailed: something in it can't be.
        """
        return self._render(self.value, scope)

    def _render(self, value: Json, scope: Scope) -> Json:
        if isinstance(value, str):
            return self._texts[value].render(scope)
        if isinstance(value, Mapping):
            return {key: self._render(one, scope) for key, one in value.items()}
        if isinstance(value, list):
            return [self._render(one, scope) for one in value]
        return value


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
