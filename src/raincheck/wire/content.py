"""Whether something is the content of a result, by the rules that both generations have for it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from raincheck.core.payload import Json

Rule: TypeAlias = Callable[[Json], bool]


def is_content(value: Json) -> bool:
    """Whether it is a list of blocks, each of a type that is known and with what that needs."""
    return _is_list(value, _is_block)


def _is_block(block: Json) -> bool:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str) or kind not in BLOCKS:
        return False
    return _has(block, *BLOCKS[kind])


def _has(value: Json, required: Mapping[str, Rule], optional: Mapping[str, Rule]) -> bool:
    if not isinstance(value, Mapping):
        return False
    if not required.keys() <= value.keys():
        return False
    # A loop, since every result is looked at, and a generator takes twice as long.
    for name, held in value.items():
        rule = required.get(name) or optional.get(name)
        if rule is not None and not rule(held):
            return False
    return True


def _is_list(value: Json, rule: Rule) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(rule, value))


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_object(value: Json) -> bool:
    return isinstance(value, Mapping)


def _is_whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_share(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_role(value: Json) -> bool:
    return value in ("user", "assistant")


def _is_annotations(value: Json) -> bool:
    audience: Rule = lambda roles: _is_list(roles, _is_role)  # noqa: E731 - a rule, like the others
    return _has(value, {}, {"audience": audience, "priority": _is_share, "lastModified": _is_text})


def _is_icons(value: Json) -> bool:
    return _is_list(value, _is_icon)


def _is_icon(value: Json) -> bool:
    optional: dict[str, Rule] = {"mimeType": _is_text, "sizes": _is_texts, "theme": lambda it: it in ("light", "dark")}
    return _has(value, {"src": _is_text}, optional)


def _is_texts(value: Json) -> bool:
    return _is_list(value, _is_text)


def _is_resource(value: Json) -> bool:
    optional: dict[str, Rule] = {"mimeType": _is_text, "_meta": _is_object}
    return any(_has(value, {"uri": _is_text, what: _is_text}, optional) for what in ("text", "blob"))


SHARED: dict[str, Rule] = {"_meta": _is_object, "annotations": _is_annotations}

BLOCKS: dict[str, tuple[dict[str, Rule], dict[str, Rule]]] = {
    "text": ({"text": _is_text}, SHARED),
    "image": ({"data": _is_text, "mimeType": _is_text}, SHARED),
    "audio": ({"data": _is_text, "mimeType": _is_text}, SHARED),
    "resource": ({"resource": _is_resource}, SHARED),
    "resource_link": (
        {"uri": _is_text, "name": _is_text},
        SHARED
        | {"title": _is_text, "description": _is_text, "mimeType": _is_text, "size": _is_whole, "icons": _is_icons},
    ),
}
"""What each type of block must have, and what it may have besides."""
