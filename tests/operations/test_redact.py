"""Secrets in commands, URLs and messages are redacted."""

import pytest

from raincheck.operations.describe import RedactedCommand, redact_server


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
def test_secrets_are_redacted_and_nothing_else(words: list[str], shown: str | None) -> None:
    assert RedactedCommand(words).text == (shown or "run --api-key=... GITHUB_TOKEN=... --db-password ...")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["run", "--header=Authorization: Bearer s3cret"], "run '--header=Authorization: ...'"),
        (["run", "--header", "Cookie: sid=s3cret"], "run --header 'Cookie: ...'"),
        (["run", "Authorization:", "Bearer", "s3cret"], "run Authorization: ... ..."),
        (["curl", "-u", "admin:s3cret"], "curl -u ..."),
        (["curl", "-uadmin:s3cret", "--user=admin:s3cret"], "curl -u... --user=..."),
        (["run", "--password", "-s3cret"], "run --password ..."),
        (["run", "--pat", "s3cret", "--jwt", "s3cret"], "run --pat ... --jwt ..."),
        (["env", "PAT=s3cret", "PATH=/bin"], "env PAT=... PATH=/bin"),
        (["sh", "-c", "export A=1; TOKEN=s3cret python s.py"], "sh -c 'export A=1; TOKEN=...'"),
        (["sh", "-c", "exec srv --token s3cret"], "sh -c 'exec srv --token ...'"),
        (["sh", "-c", "curl -u admin:s3cret x"], "sh -c 'curl -u ... x'"),
        (["run", "--config", '{"a": 1, "token": "s3cret"}'], """run --config '{"a": 1, "token": ...'"""),
        (["run", r"{\"token\": \"s3cret\"}", "TOKEN=//s3cret"], r"""run '{\"token\": ...' TOKEN=..."""),
        (["run", "postgres://me:s3/s3cret@s3cret@db/x"], "run postgres://...@db/x"),
    ],
)
def test_a_secret_is_redacted_in_any_form(words: list[str], shown: str) -> None:
    assert RedactedCommand(words).text == shown


@pytest.mark.parametrize(
    "words",
    [
        ["uvx", "--from", "git+https://a.example/x/y.git@main", "server"],
        ["python", "-u", "server.py"],
        ["docker", "run", "-e", "MODE=fast", "-v", "/a:/b", "image:1"],
    ],
)
def test_text_that_only_resembles_a_secret_is_not_redacted(words: list[str]) -> None:
    assert RedactedCommand(words).text == " ".join(words)


@pytest.mark.parametrize(
    "word", ["--header=Authorization: Bearer s3cret", '--config={"token": "s3cret"}', "PAT=s3cret"]
)
def test_messages_are_redacted_by_the_value_alone(word: str) -> None:
    assert RedactedCommand(["run", word]).redact("s3cret is wrong") == "... is wrong"


def test_a_secret_is_redacted_in_messages() -> None:
    covered = RedactedCommand(["run", "--token=abcdef", "--password", "abcdefgh", "--pass=on"])
    assert covered.redact("abcdefgh and abcdef, turned on") == "... and ..., turned on"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cd '/two words' && run --token=abc", "cd '/two words' && run --token=..."),
        ("https://a.example/mcp", "https://a.example/mcp"),
        ("unix:/it's.sock", "unix:/it's.sock"),
    ],
)
def test_a_saved_server_name_is_redacted(name: str, shown: str) -> None:
    assert redact_server(name) == shown
