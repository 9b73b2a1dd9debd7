"""The rule for values in commands, so that no caller runs code of their own. The docs have it at `values-in-commands`.

A value is an expression in a command, unless it reads `env` alone, which the operator sets.

1. A value never chooses the program.
2. A value is a whole argument, and does not follow an option, whose argument it could be.
3. At run time, a value that starts with `-` is refused, unless a constant `--` is before it.
4. A program that runs code or other programs takes no values, neither as arguments nor as standard input; nor do the
   variables that make programs load code. A shell or an interpreter that is given a constant script file is that
   script, and takes values like any other program.

A typed value may be part of an argument, follow an option, and be used where the fourth rule applies. It is a number, a
boolean, or a text for which the file declares an `enum`, or a `pattern` that lists its characters, so that the author
knows what it can be. With `unsafe: true` on a step, only the first rule applies.

The second and third rule do not depend on how a program reads its options, since a list of options is never complete.
Neither is the list of programs of the fourth, which is why the other rules apply to every program.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from raincheck.workflows.actions.code_runners import is_code_runner, is_script_runner, loads_code
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.sandbox import text_of
from raincheck.workflows.expressions.template import (
    Expression,
    InvalidExpression,
    TextTemplate,
    has_expressions,
    texts_in,
)
from raincheck.workflows.parsing.models import RunModel
from raincheck.workflows.validation import check_properties

SCALARS = frozenset({"number", "integer", "boolean"})

CONSTANT_PROGRAM = "callers must not choose the program: make the first item constant"
_OR_TYPED = (
    "or declare its input as a number, a boolean, an `enum`, or a `pattern` from ^ to $ that lists the characters that "
    "it allows"
)
ONLY_TYPED = (
    "takes only typed values, since it may run what they say: use `shell:` with a constant script and pass the value "
    f"in `env`, {_OR_TYPED}"
)
WHOLE_ARGUMENT = (
    f"a value of any text must be a whole argument: make it an item of its own, pass it in `env`, {_OR_TYPED}"
)
NOT_AFTER_OPTION = (
    "a value of any text must not follow the option {!r}, whose argument it may be: if the option takes none, put a "
    f"constant `--` between them; else use `shell:` and pass the value in `env`, {_OR_TYPED}"
)


def is_from_caller(part: str | Expression) -> bool:
    """Return whether a part of a text may be chosen by a caller, or by a program that ran before."""
    return isinstance(part, Expression) and any(path[0] != "env" for path in part.paths)


def starts_with_value(text: TextTemplate) -> bool:
    """Return whether a value may be at the start of a text, where `-` would make it an option."""
    return not isinstance(text.parts[0], str) and any(
        is_from_caller(part) and not cast("Expression", part).is_choice for part in text.parts
    )


def is_option(text: str) -> bool:
    """Return whether the next argument may belong to this one. `--name=value` has its argument already."""
    # `-` is the standard input.
    return text.startswith("-") and text not in ("-", "--") and "=" not in text


def check_values(run: RunModel, inputs: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the values of a command that break the rule. `inputs` are the JSON Schemas of the workflow's arguments."""
    if run.argv is not None and any(map(is_from_caller, _parts(text_of(run.argv[0])))):
        yield ("run",), CONSTANT_PROGRAM
        return
    if run.unsafe:
        return
    if run.argv is not None:
        yield from _check_arguments(run, [text_of(item) for item in run.argv], inputs)
    for name, text in run.env.items():
        if loads_code(name) and _values(text_of(text), inputs):
            yield ("run", "env", name), f"the variable {name} {ONLY_TYPED}"


def _check_arguments(run: RunModel, argv: list[str], inputs: Mapping[str, Any]) -> Iterator[Problem]:
    takes_only_typed = runs_code(run)
    is_after_dashes = False
    for index, text in enumerate(argv[1:], 1):
        values = _values(text, inputs)
        if values and takes_only_typed:
            yield ("run", "argv", index), f"{argv[0]!r} {ONLY_TYPED}"
        elif values and len(_parts(text)) > 1:
            yield ("run", "argv", index), WHOLE_ARGUMENT
        elif values and index > 1 and is_option(argv[index - 1]) and not is_after_dashes:
            yield ("run", "argv", index), NOT_AFTER_OPTION.format(argv[index - 1])
        is_after_dashes |= text == "--"
    if takes_only_typed:
        for route, text in texts_in(run.stdin, ("run", "stdin")):
            if _values(text, inputs):
                yield route, f"the standard input of {argv[0]!r} {ONLY_TYPED}"


def runs_code(run: RunModel) -> bool:
    """Return whether a command may run what its values say. A program that only `env` names may be any program."""
    if run.argv is None:
        return False
    program = text_of(run.argv[0])
    if has_expressions(program):
        return True
    return is_code_runner(program) and not (is_script_runner(program) and _has_script(run))


def _has_script(run: RunModel) -> bool:
    """Return whether the first argument is a script file that no value chooses, not by the folder it is in either."""
    script = text_of(run.argv[1]) if run.argv is not None and len(run.argv) > 1 else ""
    # A word without a dot or a slash may be a command of the interpreter, such as `node inspect`. Devices are input.
    is_file = not script.startswith(("-", "+")) and not {".", "/"}.isdisjoint(script)
    is_device = re.search(r"dev/|proc/|stdin", script) is not None
    return is_file and not is_device and not has_expressions(script) and not _values(run.cwd or "", {})


def _parts(text: str) -> tuple[str | Expression, ...]:
    """Return the parts of a text; none of an invalid one, which is reported elsewhere."""
    try:
        return TextTemplate.parse(text).parts
    except InvalidExpression:
        return ()


def _values(text: str, inputs: Mapping[str, Any]) -> list[Expression]:
    """Return the values in a text that are not typed."""
    return [
        part
        for part in _parts(text)
        if isinstance(part, Expression) and is_from_caller(part) and not _is_typed(part, inputs)
    ]


def _is_typed(expression: Expression, inputs: Mapping[str, Any]) -> bool:
    if expression.is_scalar or expression.is_choice:
        return True
    if expression.path is None or expression.path[0] != "input":
        return False
    if any(check_properties({name: inputs[name] for name in expression.path[1:2] if name in inputs})):
        # An invalid schema is reported where it is declared.
        return True
    schema: Mapping[str, Any] = {"properties": inputs}
    for name in expression.path[1:]:
        schema = _mapping(_mapping(schema.get("properties")).get(name))
    return _declares_type(schema)


def _mapping(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - any YAML value
    # In older dialects, the keys beside a `$ref` are ignored.
    is_schema = isinstance(value, Mapping) and "$ref" not in value and "$schema" not in value
    return cast("Mapping[str, Any]", value) if is_schema else {}


def _declares_type(schema: Mapping[str, Any]) -> bool:
    choices: Any = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list):
        return all(isinstance(choice, str | int | float) for choice in cast("list[Any]", choices))
    types: Any = schema.get("type")
    names = cast("list[str]", types if isinstance(types, list) else [types])
    return all(name in SCALARS or (name == "string" and _lists_characters(schema.get("pattern"))) for name in names)


_ESCAPE = r"\\[dw]|\\[^\w\s]"
# Ranges within letters or digits alone: `[ -~]` and `[A-z]` contain quotes.
_CLASS = rf"\[-?(?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|{_ESCAPE}|[^\\\[\]^\x00-\x1f-])*-?\]"
_PIECE = rf"(?:{_CLASS}|{_ESCAPE}|[^\\^$.|?*+()\[\]{{}}\x00-\x1f])(?:(?:[*+?]|\{{[0-9]*,?[0-9]*\}})[?+]?)?"
_GROUP = re.compile(rf"(?<!\\)\((?:\?:)?(?:{_PIECE}|\|)*\)")
_WHOLE = re.compile(rf"\^(?:{_PIECE})*\$")


def _lists_characters(pattern: Any) -> bool:  # noqa: ANN401 - any YAML value
    """Return whether a pattern describes the whole text, and lists the characters in it.

    One that only excludes some, such as `^.*$` or `^[^;]+$`, does not show what a value can be. Flags, and
    whatever else this grammar does not have, could change what the rest means, so a pattern with them is not accepted.
    """
    if not isinstance(pattern, str):
        return False
    while pattern != (inner := _GROUP.sub("x", pattern)):
        pattern = inner
    return _WHOLE.fullmatch(pattern) is not None
