"""Hostile values, and mutations of valid ones: everything is drawn from the generator that is passed."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any, cast

Path = tuple[str | int, ...]

TEXTS = (
    "", " ", "\0", "a\0b", "\x7f\x1b[31m", "\ud800", "\udfff\ud800", "\ufeff", "\u202e", "é", "漢字", "😀",
    "a" * 300, "../../etc/passwd", "/", "..", "~", "$(id)", "`id`", "; id", "| id", "-rf", "--help", "-",
    "{{ 7 * 7 }}", "{% raw %}", "{{ env.PLANTED_SECRET }}", "{{ config }}", "%s%n", "%00", "\r\nX-Injected: 1",
    "\n", "' OR 1=1 --", '"', "\\", "<b>", "null", "true", "NaN", "Infinity", "1e999", "0x10", "1" * 400,
    "__proto__", "constructor", "__class__", "$ref", "http://127.0.0.1:1/", "file:///etc/passwd", "2026-07-28",
    "2025-11-25", "9999-99-99", "data:,x", "\u2028",
)  # fmt: skip

NUMBERS = (
    0, -1, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400, 0.1, -0.0, 1e308,
    -1e308, 5e-324, 1.5, 1e16, 4294967295,
)  # fmt: skip

WORDS = ("task", "taskId", "ttl", "name", "arguments", "cursor", "_meta", "id", "method", "params", "jsonrpc", "value")


def hostile_value(random: Random, depth: int = 0) -> Any:
    """Return a value of any JSON type, and sometimes a large or deep one."""
    kinds: list[Callable[[Random], Any]] = [_text, _text, _number, _constant]
    if depth < 3:
        kinds += [partial(_array, depth), partial(_object, depth)]
    if depth == 0 and random.random() < 0.03:
        return _huge(random)
    return random.choice(kinds)(random)


def _text(random: Random) -> str:
    if random.random() < 0.2:
        return "".join(chr(random.choice((random.randrange(0x80), random.randrange(0x10000)))) for _ in range(8))
    return random.choice(TEXTS)


def _number(random: Random) -> int | float:
    return random.choice(NUMBERS) if random.random() < 0.8 else random.randrange(-(2**70), 2**70)


def _constant(random: Random) -> bool | None:
    return random.choice((None, True, False))


def _array(depth: int, random: Random) -> list[Any]:
    return [hostile_value(random, depth + 1) for _ in range(random.randrange(4))]


def _object(depth: int, random: Random) -> dict[str, Any]:
    return {
        random.choice(WORDS) if random.random() < 0.5 else _text(random): hostile_value(random, depth + 1)
        for _ in range(random.randrange(4))
    }


def _huge(random: Random) -> Any:
    if random.random() < 0.5:
        return random.choice(("x", "é", "\0", "\\")) * random.choice((70_000, 300_000, 600_000))
    value: Any = 0
    for _ in range(random.choice((50, 150, 400))):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


def fields_of(value: Any) -> dict[str, Any]:  # any JSON value
    """Return the fields of an object; none of any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each value in a value, itself first."""
    yield path
    if isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            yield from paths(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from paths(inner, (*path, index))


def mutate(random: Random, value: Any, times: int) -> Any:
    """Return a copy with random changes in random places."""
    changed = deepcopy(value)
    for _ in range(times):
        path = random.choice([*paths(changed)])
        changed = _change(random, changed, path) if path else _change_root(random, changed)
    return changed


def _change_root(random: Random, value: Any) -> Any:
    # Rarely replaced as a whole, since little of the server sees such a message.
    if random.random() < 0.8 and isinstance(value, dict):
        return {**cast("dict[str, Any]", value), random.choice(WORDS): hostile_value(random)}
    return random.choice((hostile_value(random), [value], [value, value], {"params": value}))


def _change(random: Random, root: Any, path: Path) -> Any:
    parent = root
    for step in path[:-1]:
        parent = parent[step]
    last: Any = path[-1]
    match random.randrange(10):
        case 0:
            del parent[last]
        case 1 if isinstance(parent, dict):
            parent[_text(random)] = cast("dict[Any, Any]", parent).pop(last)
        case 2:
            parent[last] = [parent[last]]
        case 3:
            parent[last] = {random.choice(WORDS): parent[last]}
        case 4 if isinstance(parent, dict):
            parent[random.choice(WORDS)] = hostile_value(random)
        case 5:
            parent[last] = str(cast("object", parent[last]))
        case _:
            parent[last] = hostile_value(random)
    return root


def encode(random: Random, value: Any) -> bytes:
    """Encode as JSON, in one of the ways that mean the same. Lone surrogates are always escaped."""
    text = json.dumps(value, ensure_ascii=random.random() < 0.5, separators=random.choice(((",", ":"), (", ", ": "))))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def corrupt(random: Random, body: bytes) -> bytes:
    """Return something that may be no JSON any more."""
    at = random.randrange(len(body) + 1)
    choices: list[Callable[[], bytes]] = [
        lambda: body[:at],
        lambda: body[:at] + random.randbytes(3) + body[at:],
        lambda: body[:at] + b"\xff\xfe" + body[at:],
        lambda: body[:at] + b"\0" + body[at:],
        lambda: b"\xef\xbb\xbf" + body,
        lambda: body.decode(errors="replace").encode("utf-16"),
        lambda: body.replace(b'"id"', b'"id":1,"id"', 1),
        lambda: body.replace(b'"method"', b'"method":"ping","method"', 1),
        lambda: body.replace(b'"params":{', b'"params":{"a":' + b"[" * 3_000 + b"]" * 3_000 + b",", 1),
        lambda: body.replace(b'"params":{', b'"params":{"a":' + b'{"a":' * 100_000, 1),
        lambda: body.replace(b'"params":{', b'"params":{"a":' + b"9" * 5_000 + b",", 1),
        lambda: body.replace(b'"params":{', b'"params":{"a":1e999,"b":-1e999,', 1),
        lambda: body.replace(b'"params":{', b'"params":{"a":NaN,"b":Infinity,', 1),
        lambda: b"[" + b",".join([body] * random.randrange(4)) + b"]",
        lambda: b"[" * 100_000,
        lambda: b"",
        lambda: random.randbytes(40),
        lambda: body + body,
    ]
    return random.choice(choices)()
