"""Owner keys never collide, and a scope covers exactly its tasks."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raincheck.core.owner import NAME_LIMIT, Owner, OwnerKind, Scope
from raincheck.errors import TooLarge

NAMES = st.text(st.characters(), max_size=20) | st.text(st.sampled_from('\0\\",:[]|/ \ud83d\ude00😀'), max_size=6)
OWNERS = st.builds(Owner, st.sampled_from(OwnerKind), st.lists(NAMES, max_size=3).map(tuple))
PAIR, EMOJI = Owner(OwnerKind.CLIENT, ("\ud83d\ude00",)), Owner(OwnerKind.CLIENT, ("😀",))
"""Two separate surrogates, and the character that they form together."""


@given(OWNERS, OWNERS)
@example(Owner(OwnerKind.TOKEN, ("a", "b")), Owner(OwnerKind.TOKEN, ("a,b",)))
@example(Owner(OwnerKind.TOKEN, ('a","b',)), Owner(OwnerKind.TOKEN, ("a", "b")))
@example(Owner(OwnerKind.TOKEN, ("a", "")), Owner(OwnerKind.TOKEN, ("a",)))
@example(Owner(OwnerKind.CLIENT, ("a",)), Owner(OwnerKind.SESSION, ("a",)))
@example(Owner(OwnerKind.LOCAL), Owner(OwnerKind.ANONYMOUS))
@example(PAIR, EMOJI)
def test_only_equal_owners_have_the_same_key(one: Owner, other: Owner) -> None:
    assert (one.key == other.key) == (one == other)


@given(OWNERS)
@example(PAIR)
@example(EMOJI)
def test_an_owner_round_trips_through_its_key(owner: Owner) -> None:
    found = Owner.from_key(owner.key)
    assert found == owner
    assert found.key == owner.key


@given(OWNERS)
def test_a_key_is_ascii(owner: Owner) -> None:
    assert owner.key.isascii()
    assert owner.key.isprintable()


def test_the_keys_do_not_change_between_versions() -> None:
    assert Owner.token("https://issuer.example", "alice").key == '["token", "https://issuer.example", "alice"]'
    assert Owner.local().key == '["local"]'
    assert Owner.anonymous().key == '["anonymous"]'


def test_the_length_of_a_name_is_limited() -> None:
    assert Owner(OwnerKind.CLIENT, ("x" * NAME_LIMIT,)).names
    with pytest.raises(TooLarge, match="an owner's name has 1,025 characters, and 1,024 are allowed"):
        Owner.token("https://issuer.example", "x" * (NAME_LIMIT + 1))


@pytest.mark.parametrize("kind", list(OwnerKind))
def test_every_owner_except_the_anonymous_one_may_list(kind: OwnerKind) -> None:
    owner = Owner(kind, ("a",))
    assert owner.may_list == (kind is not OwnerKind.ANONYMOUS)
    assert Scope.for_owner("reports", owner).may_list == owner.may_list


def test_workers_and_operators_may_list() -> None:
    assert Scope.for_namespace("reports").may_list
    assert Scope.everything().may_list


ALICE, BOB = Owner.token("https://issuer.example", "alice"), Owner.token("https://issuer.example", "bob")


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        (Scope.for_owner("reports", ALICE), {("reports", ALICE)}),
        (Scope.for_namespace("reports"), {("reports", ALICE), ("reports", BOB)}),
        (Scope(None, ALICE), {("reports", ALICE), ("builds", ALICE)}),
        (Scope.everything(), {("reports", ALICE), ("reports", BOB), ("builds", ALICE), ("builds", BOB)}),
        (Scope.for_owner("", ALICE), set[tuple[str, Owner]]()),
        (Scope.for_owner("reports", Owner.anonymous()), set[tuple[str, Owner]]()),
    ],
    ids=["one owner", "one server", "one owner on every server", "everything", "unknown server", "unknown owner"],
)
def test_a_scope_covers_only_its_namespace_and_owner(scope: Scope, covered: set[tuple[str, Owner]]) -> None:
    every = [(namespace, owner) for namespace in ("reports", "builds") for owner in (ALICE, BOB)]
    assert {(namespace, owner) for namespace, owner in every if scope.covers(namespace, owner)} == covered


@given(OWNERS, OWNERS)
def test_an_owners_scope_covers_only_the_same_owner(one: Owner, other: Owner) -> None:
    assert Scope.for_owner("reports", one).covers("reports", other) == (one == other)
