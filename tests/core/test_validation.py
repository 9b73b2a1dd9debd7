"""Names that can't be stored are refused; messages are repaired."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raincheck.core.validation import MESSAGE_LIMIT, NAME_LIMIT, check_name, clip
from raincheck.errors import InvalidValue, TooLarge

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
