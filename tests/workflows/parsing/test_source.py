"""Workflow files are read as data with the line of every value, and unsupported YAML is refused."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raincheck.errors import InvalidValue
from raincheck.workflows import InvalidWorkflow
from raincheck.workflows.parsing.source import FILE_LIMIT, parse_duration, parse_size, read_source


def faults(folder: Path, content: str | bytes) -> list[tuple[int, str]]:
    file = folder / "flow.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InvalidWorkflow) as raised:
        read_source(file)
    assert all(fault.file == str(file) for fault in raised.value.diagnostics)
    return [(fault.line, fault.message) for fault in raised.value.diagnostics]


def test_every_value_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text("a:\n  b:\n    - x\n    - c: 1\n      d:\n        [2,\n         3]\n")
    source = read_source(file)
    assert source.data == {"a": {"b": ["x", {"c": 1, "d": [2, 3]}]}}
    assert [source.line_of(path) for path in ([], ["a", "b"], ["a", "b", 1, "d"], ["a", "b", 1, "d", 1])] == [
        1,
        2,
        5,
        7,
    ]
    assert source.line_of(["a", "b", 1, "nowhere"]) == 4, "the nearest that is known"


def test_unquoted_words_are_text_unless_they_are_constants_or_numbers(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text("on: yes\noff: no\nd: 2024-01-01\nt: 1:30\ni: 0x1f\nf: 1e3\nn: ~\nb: true\nq: '1'\ne:\nv: 1.0.0\n")
    assert read_source(file).data == {
        "on": "yes", "off": "no", "d": "2024-01-01", "t": "1:30", "i": 31, "f": 1000.0, "n": None, "b": True, "q": "1",
        "e": None, "v": "1.0.0",
    }  # fmt: skip


def test_a_duplicate_key_is_reported_with_both_lines(tmp_path: Path) -> None:
    assert faults(tmp_path, "a: 1\nb:\n  c: 1\n  c: 2\na: 2\n") == [
        (4, "this key is already in line 3: remove one of the two"),
        (5, "this key is already in line 1: remove one of the two"),
    ]


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("1: a\n", 1, "is not text"),
        ("a: 1\ntrue: a\n", 2, "is not text"),
        ("? [a]\n: b\n", 1, "is not text"),
        ("a: 1\n---\nb: 2\n", 2, "put it in a file of its own"),
        ("a: [1,\nb: }\n", 2, "not YAML"),
        ("a: 'x\n", 2, "not YAML"),
        ("\ta: 1\n", 1, "not YAML"),
        ("", 1, "empty"),
        ("# nothing\n", 1, "empty"),
        ("a: 1\nb: !!python/object:os.system x\n", 2, "tag"),
        ("a: !!str 5\n", 1, "tag"),
        ("a: !mine {b: 1}\n", 1, "tag"),
        ("a: .nan\n", 1, "is not a number in JSON"),
        ("a: 1e999\n", 1, "too large"),
        ("a: " + "9" * 400 + "\n", 1, "digits"),
        ("a: 1\nb: \x07\n", 2, "does not allow"),
        (b"a: 1\nb: \xff\n", 2, "not UTF-8"),
        ("a: &x [*x]\n", 1, "nested deeper"),
        ("a: &x {b: *x, c: *x}\n", 1, "nested deeper"),
        ("a: *nowhere\n", 1, "not YAML"),
        ("[" * 100_000, 1, "nested deeper"),
        ("- " * 10_000 + "\n", 1, "nested deeper"),
    ],
)
def test_yaml_beyond_plain_data_is_refused(tmp_path: Path, content: str | bytes, line: int, message: str) -> None:
    found = faults(tmp_path, content)
    assert found[0][0] == line
    assert message in found[0][1]


def test_aliases_can_not_exhaust_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "use fewer aliases" in faults(tmp_path, "\n".join(lines))[0][1]


@pytest.mark.parametrize("one", ["&x {text}", "&x {{{text}: 1}}"])
def test_aliases_of_large_texts_can_not_exhaust_memory(tmp_path: Path, one: str) -> None:
    long = one.format(text="x" * 1_000 if "{{" in one else "x" * 500_000)
    many = ", ".join(["*x"] * (5_000 if "{{" in one else 10))
    assert faults(tmp_path, f"a: {long}\nb: [{many}]\n") == [
        (1, "all texts have more than 4,000,000 characters together: use fewer aliases")
    ]


def test_a_few_aliases_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text("a: &x {b: 1}\nc: *x\n")
    assert read_source(file).data == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_missing_or_too_large_file_is_an_error(tmp_path: Path) -> None:
    assert "split it" in faults(tmp_path, "#" * (FILE_LIMIT + 1))[0][1]
    with pytest.raises(InvalidWorkflow, match="can't be read"):
        read_source(tmp_path / "gone.yaml")


@given(content=st.binary(max_size=60) | st.text(alphabet="{}[]:-&*!|>'\"#%@ \n\ta1,?", max_size=60).map(str.encode))
def test_any_bytes_are_data_or_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "any.yaml"
    file.write_bytes(content)
    with contextlib.suppress(InvalidWorkflow):
        read_source(file)


@pytest.mark.parametrize(
    ("said", "meant"), [("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), (1.5, 1.5), ("0.5 s", 0.5), ("7", 7)]
)
def test_durations_are_parsed_to_seconds(said: str | float, meant: float) -> None:
    assert parse_duration(said) == meant


@pytest.mark.parametrize("said", ["", "5 parsecs", "-5s", -1, "1e5", float("nan"), float("inf"), "400d", True, "1h30m"])
def test_invalid_durations_are_refused(said: str | float) -> None:
    with pytest.raises(InvalidValue, match="a duration is"):
        parse_duration(said)


@pytest.mark.parametrize(("said", "meant"), [("500", 500), ("1KB", 1024), ("2 mb", 2 * 1024**2), (7, 7)])
def test_sizes_are_parsed_to_bytes(said: str | int, meant: int) -> None:
    assert parse_size(said) == meant


@pytest.mark.parametrize("said", ["", "1TB", "-1", -1, True, "1.5MB"])
def test_invalid_sizes_are_refused(said: str | int) -> None:
    with pytest.raises(InvalidValue, match="a size is"):
        parse_size(said)
