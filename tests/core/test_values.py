"""JSON values round-trip, and everything else is refused. Names that can't be stored are refused; messages repaired."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from raincheck.core.values import (
    DEPTH_LIMIT,
    MESSAGE_LIMIT,
    NAME_LIMIT,
    SEAL,
    Json,
    Payload,
    check_name,
    check_size,
    clip,
    decode,
    encode,
)
from raincheck.errors import InvalidValue, NotJson, PayloadSealed, TooLarge

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES: st.SearchStrategy[Json] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5)
)


@given(VALUES)
def test_a_value_round_trips(value: Json) -> None:
    decoded = decode(encode(value))
    assert decoded == value
    assert repr(decoded) == repr(value), "1, 1.0, True and -0.0 are distinguished"


@given(VALUES)
def test_json_never_looks_sealed(value: Json) -> None:
    assert SEAL not in encode(value)


@pytest.mark.parametrize(
    "value",
    ["", "\x01", "\x01\x00", "\0", "\ufeff", "é", "😀", "\u2028", {"\x01": "\x01"}, [], {}, 0, -0.0, None, 2**70],
    ids=repr,
)
def test_unusual_values_round_trip(value: Json) -> None:
    payload = encode(value)
    assert not payload.startswith(SEAL)
    assert decode(payload) == value


def test_a_payload_is_compact_and_in_plain_utf_8() -> None:
    assert encode({"name": "é", "rows": [1, 2]}) == '{"name":"é","rows":[1,2]}'.encode()


def _deep(depth: int) -> Json:
    value: Json = []
    for _ in range(depth):
        value = [value]
    return value


def _circle() -> Json:
    circle: list[Json] = []
    circle.append(circle)
    return circle


REFUSED: dict[str, Callable[[], object]] = {
    "NaN": lambda: nan,
    "infinity": lambda: [inf],
    "minus infinity": lambda: {"rate": -inf},
    "bytes": lambda: b"report",
    "bytes deep inside": lambda: {"rows": [{"raw": b""}]},
    "a key that is no text": lambda: {b"raw": 1},
    "a key that is NaN": lambda: {nan: 1},
    "a set": lambda: {1, 2},
    "an object": object,
    "a lone surrogate": lambda: "\ud800",
    "a lone surrogate in a key": lambda: {"\udfff": 1},
    "recursion without end": lambda: _deep(100_000),
    "a circle": _circle,
    "a number of more digits than Python writes": lambda: 10**5_000,
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_json_can_not_represent_are_refused_by_name(name: str) -> None:
    value = cast("Json", REFUSED[name]())
    with pytest.raises(NotJson, match="the result can't be written as JSON: ") as refused:
        encode(value, what="the result")
    assert refused.value.__cause__ is not None


def test_every_accepted_value_can_be_read_again() -> None:
    for depth in range(850, 1_000):
        try:
            payload = encode(_deep(depth))
        except NotJson:
            return
        decode(payload)


def _in_list(value: Json) -> Json:
    return [value]


def _in_object(value: Json) -> Json:
    return {"[": value}


@pytest.mark.parametrize("wrap", [_in_list, _in_object])
def test_a_value_may_be_nested_up_to_the_limit(wrap: Callable[[Json], Json]) -> None:
    value: Json = "]}"
    for _ in range(DEPTH_LIMIT):
        value = wrap(value)
    assert decode(encode(value)) == value
    with pytest.raises(NotJson, match="nested deeper than 200 levels"):
        encode(wrap(value))


def test_a_wide_value_is_not_deep() -> None:
    wide: Json = [[{"rows": [[], {}]}] for _ in range(DEPTH_LIMIT)]
    assert decode(encode(wide)) == wide


def test_closed_brackets_do_not_allow_deeper_nesting_later() -> None:
    closed: list[Json] = [[], {}] * DEPTH_LIMIT
    assert decode(encode([*closed, _deep(DEPTH_LIMIT - 2)])) == [*closed, _deep(DEPTH_LIMIT - 2)]
    with pytest.raises(NotJson):
        encode([*closed, _deep(DEPTH_LIMIT - 1)])


@pytest.mark.parametrize("text", ["[", "]", "{[", '"[', '\\"[', "\\[", '\\\\"{', "[\n", "]}"], ids=repr)
def test_brackets_in_a_string_are_not_nesting(text: str) -> None:
    many: Json = {text: [text * (DEPTH_LIMIT + 1), text]}
    assert decode(encode(many)) == many
    # Nor do they close anything.
    deep = _deep(DEPTH_LIMIT)
    with pytest.raises(NotJson):
        encode([text, deep, text])
    with pytest.raises(NotJson):
        encode({text: deep})


def test_encoding_a_large_text_takes_memory_in_proportion() -> None:
    text = '[\\"' * 1_000_000
    tracemalloc.start()
    try:
        encode(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(text)


def test_a_sealed_payload_is_not_read_without_its_key() -> None:
    with pytest.raises(PayloadSealed, match="open the store with the key that sealed it"):
        decode(Payload(SEAL + b"anything"))


def test_a_payload_at_its_limit_is_accepted_and_one_byte_more_is_not() -> None:
    check_size(None, 0, what="arguments")
    check_size(Payload(b"12345"), 5, what="arguments")
    with pytest.raises(TooLarge, match="arguments has 6 bytes, and 5 are allowed") as too_large:
        check_size(Payload(b"123456"), 5, what="arguments")
    assert (too_large.value.what, too_large.value.size, too_large.value.limit) == ("arguments", 6, 5)


@pytest.mark.parametrize("value", ["text", {"a": 1}, 5, bytearray(b"1")], ids=repr)
def test_a_value_that_was_not_encoded_is_refused_with_advice(value: object) -> None:
    with pytest.raises(InvalidValue, match=r"arguments must be a payload, not .*: encode it first"):
        check_size(cast("Payload", value), 100, what="arguments")


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"nul", b"\xff", b"[" * 100_000], ids=["empty", "half", "word", "byte", "deep"]
)
def test_bytes_not_made_by_encode_are_refused(payload: bytes) -> None:
    with pytest.raises(NotJson, match="this payload is not JSON"):
        decode(Payload(payload))


def test_a_size_limit_counts_bytes_and_not_characters() -> None:
    with pytest.raises(TooLarge):
        check_size(encode("éé"), 5, what="arguments")


class _Model(BaseModel):
    rows: int


@dataclass
class _Record:
    rows: int


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (_Model(rows=1), 'a _Model is a model, not JSON: pass its model_dump(mode="json")'),
        (_Record(1), "a _Record is a dataclass, not JSON: pass dataclasses.asdict of it"),
    ],
    ids=["model", "dataclass"],
)
def test_models_and_dataclasses_are_refused_with_advice(value: object, advice: str) -> None:
    with pytest.raises(NotJson) as refused:
        encode(cast("Json", {"rows": [value]}), what="the result")
    assert str(refused.value) == f"the result can't be written as JSON: {advice}"


ANY_TEXT = st.text(st.characters()) | st.text(st.sampled_from("\0a\ud800\udfffé😀"))
"""All of Unicode, including lone surrogates and NUL."""

LONG_TEXT = st.tuples(ANY_TEXT, st.integers(0, 3_000)).map(lambda drawn: drawn[0] * drawn[1])


@given(ANY_TEXT | LONG_TEXT)
@example("\0" * MESSAGE_LIMIT)
@example("\ud800" * (MESSAGE_LIMIT + 1))
@example("\ud83d\ude00")
@example("x" * (MESSAGE_LIMIT - 1) + "😀")
def test_any_message_is_clipped_and_can_be_stored(message: str) -> None:
    clipped = clip(message)
    assert clipped is not None
    assert len(clipped) <= MESSAGE_LIMIT
    assert "\0" not in clipped
    assert clipped.encode().decode() == clipped
    assert clip(clipped) == clipped


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=MESSAGE_LIMIT))
@example("x" * MESSAGE_LIMIT)
@example("é" * MESSAGE_LIMIT)
@example("")
def test_a_message_that_needs_no_repair_is_unchanged(message: str) -> None:
    assert clip(message) == message


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_shortened_message_ends_with_an_ellipsis(letter: str) -> None:
    assert clip(letter * (MESSAGE_LIMIT + 1)) == letter * (MESSAGE_LIMIT - 1) + "…"


def test_each_character_that_can_not_be_stored_is_replaced() -> None:
    assert clip("a\0b") == "a\N{REPLACEMENT CHARACTER}b"
    assert clip("a\ud800b") == "a?b"


def test_no_message_stays_none() -> None:
    assert clip(None) is None


@given(ANY_TEXT | LONG_TEXT)
@example("")
@example("x" * NAME_LIMIT)
@example("x" * (NAME_LIMIT + 1))
def test_a_name_is_refused_or_can_be_stored_unchanged(name: str) -> None:
    fit = 0 < len(name) <= NAME_LIMIT and "\0" not in name and not any("\ud800" <= one <= "\udfff" for one in name)
    if fit:
        check_name(name, what="a name")
        assert name.encode().decode() == name
    else:
        with pytest.raises(InvalidValue):
            check_name(name, what="a name")


def test_the_error_of_a_refused_name_says_what_is_wrong() -> None:
    with pytest.raises(InvalidValue, match="a namespace must not be empty"):
        check_name("", what="a namespace")
    with pytest.raises(TooLarge, match="a namespace has 513 characters, and 512 are allowed"):
        check_name("x" * 513, what="a namespace")
    for odd in ("a\0b", "a\ud800b"):
        with pytest.raises(InvalidValue, match="has a NUL or a lone surrogate: remove it") as refused:
            check_name(odd, what="a namespace")
        assert repr(odd) in str(refused.value)
        assert str(refused.value).encode()
