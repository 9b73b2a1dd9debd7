"""What is hidden of a command that is shown."""

import pytest

from raincheck.cli.secrecy import cover, shown_server


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["python", "server.py", "--port=80", "mode=fast"], "python server.py --port=80 mode=fast"),
        (["run", "--api-key=abc", "GITHUB_TOKEN=abc", "--db-password", "abc"], None),
        (["run", "--token", "--verbose"], "run --token --verbose"),
        (["curl", "-H", "Authorization: Bearer abc"], "curl -H 'Authorization: ...'"),
        (["run", "postgres://me:abc@db/x"], "run postgres://...@db/x"),
        (["run", "--url=https://a.example/mcp?k=abc&l=abc"], "run '--url=https://a.example/mcp?...&...'"),
        (["run", "sk-abcdefghijklmnop"], "run ..."),
        (["run", "--key-file", "keys.pem"], "run --key-file keys.pem"),
    ],
)
def test_what_looks_secret_is_hidden_and_nothing_else(words: list[str], shown: str | None) -> None:
    assert cover(words).text == (shown or "run --api-key=... GITHUB_TOKEN=... --db-password ...")


def test_what_others_say_is_cleaned_of_it() -> None:
    covered = cover(["run", "--token=abcdef", "--password", "abcdefgh", "--pass=on"])
    assert covered.clean("abcdefgh and abcdef, turned on") == "... and ..., turned on"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cd '/two words' && run --token=abc", "cd '/two words' && run --token=..."),
        ("https://a.example/mcp", "https://a.example/mcp"),
        ("unix:/it's.sock", "unix:/it's.sock"),
    ],
)
def test_a_name_in_the_book_is_shown_without_it(name: str, shown: str) -> None:
    assert shown_server(name) == shown
