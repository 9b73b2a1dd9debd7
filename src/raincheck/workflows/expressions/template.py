"""Expressions: what a file says of values that are not known yet.

Only text from files is ever compiled. What an expression makes is JSON.

Values with expressions in them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, cast

from jinja2 import Template as CompiledTemplate
from jinja2 import nodes
from jinja2.exceptions import TemplateError, UndefinedError
from jinja2.parser import Parser

from raincheck.core.payload import Json, encode
from raincheck.errors import InvalidValue
from raincheck.workflows.expressions.sandbox import TEXT_LIMIT, Sandbox, plain, text_of

Scope: TypeAlias = Mapping[str, Json]
"""The names that an expression can use, and what they are."""

Chain: TypeAlias = tuple[str, ...]
"""A name and what is taken from it by constant names: `steps.build.result` is three."""

SOURCE_LIMIT = 4_000
"""Characters of one expression."""

ABSENT = {"env": "the variable {} is not set where this runs", "data": "the data has no '{}' yet"}

SANDBOX = Sandbox()
_VALUE = "_value"
TOO_DEEP = (RecursionError, MemoryError, SyntaxError)


class InvalidExpression(InvalidValue):
    """Text that is no expression, or no text with expressions in it."""


class ExpressionFailed(InvalidValue):
    """An expression that can't be worked out with these values."""


class Expression:
    """Something to be worked out when its values are known."""

    def __init__(self, node: nodes.Expr, source: str) -> None:
        self.source = source
        assign = nodes.Assign(nodes.Name(_VALUE, "store"), node, lineno=1)
        try:
            # It joins text without a bound.
            if isinstance(node, nodes.Concat) or node.find(nodes.Concat) is not None:
                raise InvalidExpression("`~` is not taken here: use `+`, or the filter join")
            self.paths = frozenset(_chains(node))
            self._compiled: CompiledTemplate = SANDBOX.from_string(nodes.Template([assign], lineno=1))
        except TemplateError as error:
            raise InvalidExpression(f"{source!r}: {error.message}") from error
        except TOO_DEEP as error:
            raise InvalidExpression("this expression is nested too deep") from error

    @classmethod
    def parse(cls, text: str) -> "Expression":
        """An expression, such as `steps.build.result.exit_code == 0`.

        Raises:
            InvalidExpression: it is none.
        """
        if len(text) > SOURCE_LIMIT:
            raise InvalidExpression(f"an expression has at most {SOURCE_LIMIT:,} characters")
        if text.strip().startswith("{{"):
            raise InvalidExpression(f"{text!r} is an expression anyway: write it without {{{{ and }}}}")
        try:
            parser = Parser(SANDBOX, text, state="variable")
            node = parser.parse_expression()
            if not parser.stream.eos:
                hint = ": did you mean ==?" if parser.stream.current.type == "assign" else ""
                raise InvalidExpression(f"{text!r} goes on after its end: {parser.stream.current}{hint}")
        except TemplateError as error:
            raise InvalidExpression(f"{text!r} is no expression: {error.message}") from error
        except TOO_DEEP as error:
            raise InvalidExpression("this expression is nested too deep") from error
        return cls(node, text)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that it begins from."""
        return frozenset(chain[0] for chain in self.paths)

    def evaluate(self, scope: Scope) -> Json:
        """What it is with these values.

        Raises:
            ExpressionFailed: it can't be worked out, or is not JSON, or too large.
        """
        context = self._compiled.new_context(dict(scope))
        try:
            for _ in self._compiled.root_render_func(context):
                pass
            value = plain(context.vars[_VALUE])
            size = len(encode(value, what="it"))
        except Exception as error:
            # Whatever a filter makes of values that it is not for: all of it is about this expression.
            why = self._absent(scope, str(error)) if isinstance(error, UndefinedError) else None
            raise ExpressionFailed(f"{self.source!r} can't be worked out: {why or error}") from error
        if size > TEXT_LIMIT:
            raise ExpressionFailed(f"{self.source!r} is too large: {size:,} bytes, and {TEXT_LIMIT:,} are allowed")
        return value

    def _absent(self, scope: Scope, told: str) -> str | None:
        """What is said to be not there, if it comes from elsewhere than the file: only its author knows the rest."""
        for root, words in ABSENT.items():
            there = scope.get(root)
            for chain in sorted(self.paths):
                first, *rest = chain
                is_absent = first == root and bool(rest) and isinstance(there, Mapping) and rest[0] not in there
                if is_absent and told.startswith(f"there is no {rest[0]!r}"):
                    return words.format(rest[0])
        return None


def _chains(node: nodes.Node) -> Iterator[Chain]:
    chain = _chain(node)
    if chain is not None:
        if chain[0] not in SANDBOX.globals:
            yield chain
        return
    for child in node.iter_child_nodes():
        yield from _chains(child)


def _chain(node: nodes.Node) -> Chain | None:
    match node:
        case nodes.Name():
            return (node.name,)
        case nodes.Getattr():
            before = _chain(node.node)
            return None if before is None else (*before, node.attr)
        case nodes.Getitem(arg=nodes.Const(value=str())):
            before = _chain(node.node)
            return None if before is None else (*before, str(cast("nodes.Const", node.arg).value))
        case _:
            return None


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
