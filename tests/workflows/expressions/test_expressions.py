"""Expressions and templates evaluate values, and no value can misuse them."""

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raincheck.core.values import Json
from raincheck.workflows.expressions.template import (
    Expression,
    ExpressionFailed,
    InvalidExpression,
    Template,
    TextTemplate,
)

SCOPE: dict[str, Json] = {
    "input": {"n": 5, "s": "héllo", "items": [1, 2, 3], "rows": [{"a": 1}, {"a": 2}], "none": None},
    "steps": {"b": {"result": {"items": [7], "keys": "mine"}, "status": "completed"}},
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("input.n + 1", 6),
        ("input['n'] > 3 and input.s is string", True),
        ("input.items", [1, 2, 3]),
        ("steps.b.result.items[0]", 7),
        ("steps.b.result.keys", "mine"),
        ("input.rows|map(attribute='a')|sum", 3),
        ("input.rows|selectattr('a', 'gt', 1)|list|length", 1),
        ("input.items|map('string')|join('-')", "1-2-3"),
        ("input.missing|default('x')", "x"),
        ("input.missing is defined", False),
        ("input.none is none", True),
        ("input.s.upper().startswith('HÉ')", True),
        ("input.s|replace('l', 'L')", "héLLo"),
        ("input.get('n')", 5),
        ("{'a': {'b': [1, (2, 3)]}}", {"a": {"b": [1, [2, 3]]}}),
        ("range(3)", [0, 1, 2]),
        ("'{\"a\": 1}'|fromjson", {"a": 1}),
        ("input.rows|tojson", '[{"a":1},{"a":2}]'),
        ("2 if input.n else 3", 2),
        ("-input.n // 2", -3),
        ("2 ** 10", 1024),
        ("input.items[1:]", [2, 3]),
        ("1.26|round(1)", 1.3),
        ("'ff'|int(base=16) - 5 % 3", 253),
        ("'42.5'|int + ('x'|int(7))", 49),
        ("[3, 1, 2]|sort|first + ['b', 'A']|max|length", 2),
        ("{'b': 1, 'a': 2}|dictsort|map('first')|list", ["a", "b"]),
    ],
)
def test_an_expression_evaluates_to_its_value(text: str, value: Json) -> None:
    assert Expression.parse(text).evaluate(SCOPE) == value


@pytest.mark.parametrize(
    "text",
    [
        "'a' * 10 ** 9",
        "[0] * 10 ** 9",
        "[['a' * 1000] * 1000] * 1000",
        "10 ** (10 ** 6)",
        "9 ** (9 ** 9)",
        "range(10 ** 9)|list",
        "range(10 ** 5)|map('string')|join('x' * 1000)",
        "'a'|replace('a', 'b' * 10 ** 6)|replace('b', 'c' * 10 ** 6)",
        "1|round(10 ** 9)",
        "2 ** 4000 * 2 ** 4000",
        "2 ** 4000 + 2 ** 4000",
        "['a']|sum",
        "'a' * 5000000 + 'a' * 5000000",
        "'%0999999999d' % 1",
        "([[['a'] * 200] * 200] * 200)|tojson",
        "range(100000)|map('string')|map('replace', '', 'y' * 1000)|list|length",
        "(['x' * 1000000] * 1000)|map('upper')|list|length",
        "(['x' * 1000000] * 1000)|sort|length",
        "([['x' * 1000000]] * 1000)|map('first')|sort|length",
        "(['x' * 1000000] * 1000)|select('equalto', 'x' * 1000000)|list|length",
        "([['a'] * 900000] * 1000)|map('join')|list|length",
        "('x' * 8000000)|map('upper')|map('replace', 'X', 'yy')|list|length",
        "('ab' * 4000000)|unique|list|length",
        "('f' * 8000000)|int(base=16) > 1",
        "'z'|int(base=36)",
        "('9' * 1001)|int > 1",
        "2 ** 4000 - 2 ** 4000",
        "2 ** 4000 % 2 ** 4000",
        "2 ** 4000 // 2 ** 4000",
        "2 ** 4000 / 2 ** 4000",
    ],
)
def test_small_inputs_can_not_produce_large_results(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(ExpressionFailed):
        Expression.parse(text).evaluate(SCOPE)
    assert time.monotonic() - began < 10, "whatever else this machine does meanwhile"


@pytest.mark.parametrize(
    "text",
    [
        "input.s.__class__",
        "''.__class__.__mro__[1].__subclasses__()",
        "input.s.format(1)",
        "input.items.append(4)",
        "input.rows[0].update(a=5)",
        "lipsum()",
        "cycler()",
        "self",
        "input.get",
        "unknown",
        "input.missing",
        "input.n.real",
        "1 / 0",
        "1e308 * 10",
        "{1: 2}",
        "input.n.x.y",
    ],
)
def test_attributes_of_python_objects_are_unreachable(text: str) -> None:
    before = repr(SCOPE)
    with pytest.raises(ExpressionFailed):
        Expression.parse(text).evaluate(SCOPE)
    assert repr(SCOPE) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "input.",
        "input n",
        "{{ input.n }}",
        "input|attr('x')",
        "input|center(9)",
        "input ~ 'x'",
        "(" * 2_000,
        "-" * 3_000 + "1",
        "x" * 5_000,
        "a" + ".a" * 1_900,
        "1+" * 1_900 + "1",
        "[" * 90 + "]" * 89,
        "lambda: 1",
        "a = 1",
        "1; 2",
    ],
)
def test_an_invalid_expression_is_refused_when_it_is_parsed(text: str) -> None:
    with pytest.raises(InvalidExpression):
        Expression.parse(text)


def test_a_missing_name_is_reported_with_the_names_that_exist() -> None:
    with pytest.raises(ExpressionFailed, match="there is no 'tag': the keys are n, s, items, rows, none"):
        Expression.parse("input.tag").evaluate(SCOPE)


def test_paths_are_the_sequences_of_constant_names() -> None:
    expression = Expression.parse("steps.a.result.x[0] + steps['b'].result + input[item] + range(round)|sum")
    assert expression.paths == {
        ("steps", "a", "result", "x"),
        ("steps", "b", "result"),
        ("input",),
        ("item",),
        ("round",),
    }


def test_the_paths_of_a_text_are_those_of_its_expressions() -> None:
    assert TextTemplate.parse("{{ steps.y.result }} and {{ item }}").paths == {("steps", "y", "result"), ("item",)}


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("plain", "plain"),
        ("{{ input.items }}", [1, 2, 3]),
        ("{{input.n}}", 5),
        ("n is {{ input.n }}!", "n is 5!"),
        ("{{ input.n }}{{ input.n }}", "55"),
        ("{{ true }} ", "true "),
        ("{{ '}}' }}", "}}"),
        ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("{{ '{%' }}", "{%"),
        ({"a": ["{{ input.n }}", 1, None, True]}, {"a": [5, 1, None, True]}),
        ("{ {", "{ {"),
        ("}}", "}}"),
    ],
)
def test_a_template_renders_to_its_value_with_expressions_evaluated(template: Json, value: Json) -> None:
    assert Template.parse(template).render(SCOPE) == value


@pytest.mark.parametrize(
    "template", ["{% if x %}", "{{ a", "{# x #}", "${#x}", "{{ }}", "{% raw %}{{ a }}{% endraw %}", "{{ a }} {{"]
)
def test_invalid_template_text_is_refused(template: str) -> None:
    with pytest.raises(InvalidExpression):
        Template.parse(template)


@pytest.mark.parametrize("template", ["x {{ input.items }}", "x {{ input.none }}", "x{{ input.rows[0] }}"])
def test_only_single_values_are_put_into_text(template: str) -> None:
    with pytest.raises(ExpressionFailed, match="can't be put into text"):
        Template.parse(template).render(SCOPE)


def test_the_total_length_of_a_text_is_bounded() -> None:
    with pytest.raises(ExpressionFailed, match="a text is too large"):
        Template.parse("{{ input.x }}" * 10).render({"input": {"x": "x" * 1_000_000}})


@given(value=JSON)
def test_a_value_is_passed_unchanged_and_never_read_as_a_template(value: Any) -> None:
    assert Template.parse("{{ input.x }}").render({"input": {"x": value}}) == value
    hostile = "{{ 1 + 1 }}{% raw %}"
    assert Template.parse("<{{ input.x }}>").render({"input": {"x": hostile}}) == f"<{hostile}>"


@given(text=st.text(alphabet="{}%# ab.|'\"()[]", max_size=30))
def test_any_text_is_a_template_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidExpression, ExpressionFailed):
        Template.parse(text).render({"a": "x", "b": [1]})
