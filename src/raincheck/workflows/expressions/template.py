"""Expressions in workflow files, for values that are not known yet, and JSON values that contain expressions.

Only text from files is ever compiled. The result of an expression is JSON. `check_expression` and `check_texts` check
that the names in an expression exist, and have a value when it is evaluated.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

from jinja2 import Template as CompiledTemplate
from jinja2 import nodes
from jinja2.exceptions import TemplateError, UndefinedError
from jinja2.parser import Parser

from raincheck.core.values import Json, encode
from raincheck.errors import InvalidValue
from raincheck.workflows.definition import KeyPath, Problem
from raincheck.workflows.expressions.sandbox import METHODS, TEXT_LIMIT, Sandbox, text_of, to_json_value

Scope: TypeAlias = Mapping[str, Json]
"""The names that an expression can use, with their values."""

NamePath: TypeAlias = tuple[str, ...]
"""A name and the constant names that follow it: `steps.build.result` has three parts."""

SOURCE_LIMIT = 4_000
"""Characters of one expression."""

MISSING_HINTS = {"env": "the environment variable {} is not set in this process", "data": "the data has no '{}' yet"}

NUMBER_FILTERS = frozenset({"int", "float", "length"})
"""Filters whose result is a number, whatever the value is."""

SANDBOX = Sandbox()
_VALUE = "_value"
NESTING_ERRORS = (RecursionError, MemoryError, SyntaxError)


class InvalidExpression(InvalidValue):
    """A text is not a valid expression, or not a valid text with expressions."""


class ExpressionFailed(InvalidValue):
    """An expression can't be evaluated with these values."""


class Expression:
    """A compiled expression, to be evaluated when its values are known."""

    def __init__(self, node: nodes.Expr, source: str) -> None:
        self.source = source
        assign = nodes.Assign(nodes.Name(_VALUE, "store"), node, lineno=1)
        try:
            # `~` joins text without a bound.
            if isinstance(node, nodes.Concat) or node.find(nodes.Concat) is not None:
                raise InvalidExpression("`~` is not supported: use `+`, or the filter join")
            self.paths = frozenset(_name_paths(node))
            self.path = _name_path(node)
            """The name path that the expression consists of, if it is nothing else."""
            self.is_scalar = _is_scalar(node)
            """Whether its value is a number or a boolean, whatever the values in it are."""
            self.is_choice = _is_choice(node)
            """Whether its value is one of several constants, such as `'--all' if input.all else '--new'`."""
            self._compiled: CompiledTemplate = SANDBOX.from_string(nodes.Template([assign], lineno=1))
        except TemplateError as error:
            raise InvalidExpression(f"{source!r}: {error.message}") from error
        except NESTING_ERRORS as error:
            raise InvalidExpression("this expression is nested too deeply: simplify it") from error

    @classmethod
    def parse(cls, text: str) -> "Expression":
        """Parse an expression, such as `steps.build.result.exit_code == 0`.

        Raises:
            InvalidExpression: the text is not a valid expression.
        """
        if len(text) > SOURCE_LIMIT:
            raise InvalidExpression(f"an expression has at most {SOURCE_LIMIT:,} characters")
        if text.strip().startswith("{{"):
            raise InvalidExpression(f"{text!r} is always read as an expression: write it without {{{{ and }}}}")
        try:
            parser = Parser(SANDBOX, text, state="variable")
            node = parser.parse_expression()
            if not parser.stream.eos:
                hint = ": did you mean ==?" if parser.stream.current.type == "assign" else ""
                raise InvalidExpression(
                    f"{text!r} has more after the end of the expression: {parser.stream.current}{hint}"
                )
        except TemplateError as error:
            raise InvalidExpression(f"{text!r} is not an expression: {error.message}") from error
        except NESTING_ERRORS as error:
            raise InvalidExpression("this expression is nested too deeply: simplify it") from error
        return cls(node, text)

    def evaluate(self, scope: Scope) -> Json:
        """Evaluate the expression with these values.

        Raises:
            ExpressionFailed: it can't be evaluated, or its value is not JSON, or too large.
        """
        context = self._compiled.new_context(dict(scope))
        try:
            for _ in self._compiled.root_render_func(context):
                pass
            value = to_json_value(context.vars[_VALUE])
            size = len(encode(value, what="it"))
        except Exception as error:
            # A filter may raise anything for unsuitable values. All of it is about this expression.
            hint = self._missing_hint(scope, str(error)) if isinstance(error, UndefinedError) else None
            raise ExpressionFailed(f"{self.source!r} can't be evaluated: {hint or error}") from error
        if size > TEXT_LIMIT:
            raise ExpressionFailed(
                f"the value of {self.source!r} is too large: {size:,} bytes, but only {TEXT_LIMIT:,} are allowed"
            )
        return value

    def _missing_hint(self, scope: Scope, message: str) -> str | None:
        """Return a hint if the missing value comes from outside the file. Other names are the file's own."""
        for root, hint in MISSING_HINTS.items():
            values = scope.get(root)
            for path in sorted(self.paths):
                first, *rest = path
                is_missing = first == root and bool(rest) and isinstance(values, Mapping) and rest[0] not in values
                if is_missing and message.startswith(f"there is no {rest[0]!r}"):
                    return hint.format(rest[0])
        return None


def _is_scalar(node: nodes.Expr) -> bool:
    match node:
        case nodes.Filter(name=name, args=[], kwargs=[], dyn_args=None, dyn_kwargs=None):
            # Without arguments, which may be a default of any kind.
            return name in NUMBER_FILTERS
        case nodes.Compare() | nodes.Not() | nodes.Test():
            return True
        case _:
            return False


def _is_choice(node: nodes.Expr | None) -> bool:
    match node:
        case nodes.Const(value=str()):
            return True
        case nodes.CondExpr():
            return _is_choice(node.expr1) and _is_choice(node.expr2)
        case _:
            return False


def _name_paths(node: nodes.Node) -> Iterator[NamePath]:
    path = _name_path(node)
    if path is not None:
        if path[0] not in SANDBOX.globals:
            yield path
        return
    for child in node.iter_child_nodes():
        yield from _name_paths(child)


def _name_path(node: nodes.Node) -> NamePath | None:
    match node:
        case nodes.Name():
            return (node.name,)
        case nodes.Getattr():
            before = _name_path(node.node)
            return None if before is None else (*before, node.attr)
        case nodes.Getitem(arg=nodes.Const(value=str())):
            before = _name_path(node.node)
            return None if before is None else (*before, str(cast("nodes.Const", node.arg).value))
        case _:
            return None


def has_expressions(text: str) -> bool:
    """Return whether a text contains expressions, so that its value is not known yet."""
    return "{{" in text


@dataclass(frozen=True)
class TextTemplate:
    """A text that may contain expressions."""

    parts: tuple[str | Expression, ...]

    @classmethod
    def parse(cls, text: str) -> "TextTemplate":
        """Parse a text in which `{{ … }}` is an expression.

        Raises:
            InvalidExpression: the text is not valid.
        """
        if "{{" not in text and "{%" not in text and "{#" not in text:
            return cls((text,))
        try:
            kinds = {kind for _, kind, _ in SANDBOX.lex(text)}
            if not kinds.isdisjoint({"block_begin", "comment_begin", "raw_begin"}):
                raise InvalidExpression("only {{ … }} is supported: for the characters {% or {#, write {{ '{%' }}")
            parsed = SANDBOX.parse(text)
        except TemplateError as error:
            is_open = "unexpected end of template" in (error.message or "")
            fault = "a {{ is not closed: add }}" if is_open else error.message
            raise InvalidExpression(f"{text!r}: {fault}") from error
        except NESTING_ERRORS as error:
            raise InvalidExpression("this expression is nested too deeply: simplify it") from error
        return cls(tuple(_parts(parsed, text)))

    @property
    def paths(self) -> frozenset[NamePath]:
        """The name paths of its expressions."""
        return frozenset(path for part in self.parts if isinstance(part, Expression) for path in part.paths)

    def render(self, scope: Scope) -> Json:
        """Return the text with the values of its expressions. An expression and nothing else keeps its type."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return self.parts[0].evaluate(scope)
        texts = [
            part if isinstance(part, str) else rendered_text(part.evaluate(scope), repr(part.source))
            for part in self.parts
        ]
        size = sum(map(len, texts))
        if size > TEXT_LIMIT:
            raise ExpressionFailed(f"a text is too large: {size:,} characters, but only {TEXT_LIMIT:,} are allowed")
        return "".join(texts)


def _parts(parsed: nodes.Template, text: str) -> Iterator[str | Expression]:
    for output in parsed.body:
        for node in cast("nodes.Output", output).nodes:
            yield node.data if isinstance(node, nodes.TemplateData) else Expression(node, text)


def rendered_text(value: Json, what: str) -> str:
    """Return a rendered value as text; `what` names it in the error.

    Raises:
        ExpressionFailed: it is not a single value.
    """
    try:
        return text_of(value)
    except TypeError as error:
        raise ExpressionFailed(f"{what}: {error}") from error


def rendered_texts(values: Json, what: str) -> dict[str, str]:
    """Return rendered values by name as texts; `what` describes one of them in the error."""
    return {name: rendered_text(value, what) for name, value in cast("Mapping[str, Json]", values).items()}


class Template:
    """A JSON value whose texts may contain expressions."""

    def __init__(self, value: Json, texts: Mapping[str, TextTemplate]) -> None:
        self.value = value
        self._texts = texts

    @classmethod
    def parse(cls, value: Json) -> "Template":
        """Parse a value from a file.

        Raises:
            InvalidExpression: a text in it is not valid.
        """
        return cls(value, {text: TextTemplate.parse(text) for text in {text for _, text in texts_in(value, ())}})

    def render(self, scope: Scope) -> Json:
        """Return the value with all its expressions evaluated.

        Raises:
            ExpressionFailed: one of them can't be evaluated.
        """
        return self._render(self.value, scope)

    def _render(self, value: Json, scope: Scope) -> Json:
        if isinstance(value, str):
            return self._texts[value].render(scope)
        if isinstance(value, Mapping):
            return {key: self._render(item, scope) for key, item in value.items()}
        if isinstance(value, list):
            return [self._render(item, scope) for item in value]
        return value


def texts_in(value: Any, route: KeyPath) -> Iterator[tuple[KeyPath, str]]:  # noqa: ANN401 - any YAML value
    """Yield every text in a value, with its path."""
    if isinstance(value, str):
        yield route, value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from texts_in(item, (*route, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from texts_in(item, (*route, index))


STEP_FIELDS = frozenset({"status", "result", "error", "failed"})
"""The fields of a step that expressions can read."""


@dataclass(frozen=True)
class AllowedNames:
    """The names that an expression may use."""

    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The JSON Schemas of the workflow's arguments, by name."""
    env: frozenset[str] = frozenset()
    steps: frozenset[str] = frozenset()
    """All steps of the pipeline."""
    before: frozenset[str] = frozenset()
    """The steps that have ended when the expression is evaluated."""
    step: str | None = None
    """The step that the expression belongs to."""
    after: frozenset[str] = frozenset()
    """The steps that start after this one has ended."""
    roots: frozenset[str] = frozenset({"input", "steps", "env"})

    def with_roots(self, *names: str) -> "AllowedNames":
        return replace(self, roots=self.roots | set(names))

    def without_roots(self, *names: str) -> "AllowedNames":
        return replace(self, roots=self.roots - set(names))

    def check(self, paths: frozenset[NamePath]) -> Iterator[str]:
        """Yield the errors in the name paths of an expression."""
        for path in sorted(paths):
            match path:
                case ("env", *_) if "env" not in self.roots:
                    reason = "as the value must be the same after a restart"
                    yield f"env can't be used here, {reason}: read it in a `set` step"
                case (root, *_) if root not in self.roots:
                    yield f"there is no name {root!r} here: use one of {', '.join(sorted(self.roots))}"
                case ("input", name, *_) if name not in self.inputs and name not in METHODS[dict]:
                    yield f"there is no input {name!r}: the inputs are {', '.join(sorted(self.inputs)) or 'none'}"
                case ("env",):
                    yield "name the variable, as in env.HOME"
                case ("env", name, *_) if name not in self.env:
                    yield f"the variable {name} is not allowed: add it to `allow.env`"
                case ("steps",):
                    yield "name the step, as in steps.build.result"
                case ("steps", step, *fields):
                    yield from self._check_step(step, fields)
                case _:
                    pass

    def _check_step(self, step: str, fields: Sequence[str]) -> Iterator[str]:
        if step not in self.steps:
            yield f"there is no step {step!r}: the steps are {', '.join(sorted(self.steps))}"
        elif step == self.step:
            yield f"step {step!r} has not ended here: only other steps can use its result, and `until` has `result`"
        elif step in self.after:
            yield f"step {step!r} starts after this one has ended: move it up, and declare what it needs"
        elif step not in self.before:
            yield f"step {step!r} may not have ended here: add it to `needs`"
        elif fields and fields[0] not in STEP_FIELDS:
            near = difflib.get_close_matches(fields[0], STEP_FIELDS, n=1)
            suggestion = near[0] if near else f"result.{fields[0]}"
            known = ", ".join(sorted(STEP_FIELDS))
            yield f"a step has {known}, not {fields[0]!r}: did you mean steps.{step}.{suggestion}?"


def check_expression(text: str, route: KeyPath, names: AllowedNames) -> Iterator[Problem]:
    """Yield the errors of an expression at this path."""
    return _check_parsed(Expression.parse, text, route, names)


def check_texts(value: Any, route: KeyPath, names: AllowedNames) -> Iterator[Problem]:  # noqa: ANN401 - any YAML value
    """Yield the errors of all texts in a value at this path. Each of them may contain expressions."""
    for text_route, text in texts_in(value, route):
        yield from _check_parsed(TextTemplate.parse, text, text_route, names)


def _check_parsed(
    parse: Callable[[str], Expression | TextTemplate], text: str, route: KeyPath, names: AllowedNames
) -> Iterator[Problem]:
    try:
        paths = parse(text).paths
    except InvalidExpression as error:
        yield route, str(error)
    else:
        yield from ((route, message) for message in names.check(paths))
