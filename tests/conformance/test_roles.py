"""A roles file assigns tools to roles, and its errors are reported with their location."""

import json
from pathlib import Path

import pytest

from raincheck.conformance import ConformanceTarget, Role, load_roles
from raincheck.conformance.roles import DEFAULT_ROLES, ROLE_DESCRIPTIONS
from raincheck.conformance.run import SuiteRun


def test_a_file_sets_some_roles_and_the_others_keep_their_defaults(tmp_path: Path) -> None:
    toml = tmp_path / "roles.toml"
    toml.write_text('plain = "echo"\nsamples = false\n[slow]\ntool = "crunch"\narguments = {n = 3}\ntakes = 2.5\n')
    roles = load_roles(toml)
    assert roles["slow"] == Role("crunch", {"n": 3}, takes=2.5)
    assert roles["plain"] == Role("echo")
    assert "samples" not in roles
    assert roles["quick"] == DEFAULT_ROLES["quick"]
    data = {"plain": "echo", "samples": False, "slow": {"tool": "crunch", "arguments": {"n": 3}, "takes": 2.5}}
    (tmp_path / "roles.json").write_text(json.dumps(data))
    assert load_roles(tmp_path / "roles.json") == roles


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[", "is not TOML"),
        ("fast = 'x'", "there is no role 'fast': the roles are quick, slow"),
        ("slow = 3", "slow: expected a tool's name, a table or false"),
        ("[slow]\ntakes = 1", "slow: tool is missing"),
        ("[slow]\ntool = 'x'\nseconds = 1", "slow: unknown key 'seconds'"),
        ("[slow]\ntool = 'x'\ntakes = true", "slow: takes can't be True"),
        ("[slow]\ntool = 'x'\narguments = 'y'", "slow: arguments can't be 'y'"),
    ],
)
def test_an_invalid_roles_file_is_reported_with_the_file_and_the_key(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"roles\.toml") as caught:
        load_roles(file)
    assert expected in str(caught.value)


def test_every_role_has_a_description_and_a_default() -> None:
    assert set(DEFAULT_ROLES) == set(ROLE_DESCRIPTIONS)


def test_an_unknown_role_is_rejected_in_a_program() -> None:
    with pytest.raises(ValueError, match="there is no role 'slwo': the roles are quick, slow"):
        SuiteRun(ConformanceTarget(url="http://127.0.0.1:1/mcp"), {"slwo": Role("crunch")})
