"""Whatever value a caller sends to whatever part of a workflow, the workflow completes, or fails and is undone."""

import asyncio
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from raincheck.core.records import View
from raincheck.core.values import Json
from raincheck.engine import Engine
from raincheck.errors import InvalidValue
from tests.support.workflows.harness import WorkflowHarness, result_of

ODD: list[Any] = [
    None, True, False, 0, -1, 3, 10**400, -(10**400), 1e308, -0.0, 5e-324, float("nan"), float("inf"),
    "", " ", "-", "--", "-rf", "a\0b", "\0", "\ud800", "\udfff tail", "x" * 5_000, "9" * 999, "../..", "/", "~root",
    "a\nb\r\nc: d", "{{ input.x }}", "{% raw %}", "http://[", "ünïcode ☃", "\u202e", "nan", "1e999", "5d", "\x1b[2J",
    [], [[]], [[[[[[]]]]]], [None], ["a", ["b"]], {}, {"a": None}, {"": ""}, {"\ud800": 1}, {"a": {"b": [1, {}]}},
    [1] * 2_000,
]  # fmt: skip
VALUES = st.sampled_from(ODD) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)

VALUE = "input.x | fromjson"
"""The arguments have the value as JSON text, which can express values that arguments can't, such as surrogates."""
X = f"{{{{ {VALUE} }}}}"
FUNCTION = "tests.support.workflows.step_functions:echo"
URL = "http://127.0.0.1:9/"

STEPS: Mapping[str, Mapping[str, Any]] = {
    "argument": {"run": ["true", X]},
    "typed": {"run": ["true", f"a{{{{ {VALUE} | int }}}}"]},
    "unsafe": {"run": {"argv": ["true", f"a{X}"], "unsafe": True}},
    "variable": {"run": {"argv": ["true"], "env": {"X": X}}},
    "text_variable": {"run": {"shell": "true", "env": {"X": f"a{X}"}}},
    "stdin": {"run": {"argv": ["cat"], "stdin": X}},
    "stdin_mapping": {"run": {"argv": ["cat"], "stdin": {"a": X}, "output": "json"}},
    "cwd": {"run": {"argv": ["true"], "cwd": X}},
    "url": {"http": {"url": X}},
    "path": {"http": {"url": f"{URL}{X}"}},
    "host": {"http": {"url": f"http://{X}/"}},
    "header": {"http": {"url": URL, "headers": {"x-key": X}}},
    "json": {"http": {"url": URL, "method": "POST", "json": {"a": X}}},
    "body": {"http": {"url": URL, "method": "POST", "body": X}},
    "set": {"set": {"a": [X], "b": f"a{X}"}},
    "set_typed": {"set": X},
    "sleep": {"sleep": X},
    "ask": {"ask": {"message": X}, "timeout": 0.01},
    "sample": {"sample": {"prompt": X, "system": X}, "timeout": 0.01},
    "sample_messages": {"sample": {"messages": [{"role": "user", "text": f"a{X}"}]}, "timeout": 0.01},
    "workflow": {"workflow": "child", "with": {"x": X}},
    "python": {"python": FUNCTION, "with": {"value": X}},
    "call": {"call": {"server": "gone", "tool": "none", "arguments": {"x": X}}},
    "artifact": {"set": X, "artifact": "it"},
    "for_each": {"for_each": VALUE, "max_parallel": 20, "set": "{{ item }}"},
    "for_each_list": {"for_each": [X, 1], "run": ["true", "{{ item }}"]},
    "if": {"if": f"({VALUE}) > 3", "set": 1},
    "until": {"set": X, "until": "result.a == 1", "max_rounds": 2},
    "retry": {"run": ["true", X], "retry": {"attempts": 2, "backoff": 0, "on": ["refused", "expression", "failed"]}},
}
MACHINES: Mapping[str, Mapping[str, Any]] = {
    "state_action": {"action": {"run": ["true", X]}, "go": {"on": "true"}},
    "state_set": {"action": {"set": X}, "go": {"on": "true", "set": {"a": X, "b": "{{ result }}"}}},
    "state_guard": {"action": {"set": 1}, "go": {"on": "true", "guard": f"({VALUE}) > 3"}},
    "state_on": {"action": {"set": X}, "go": {"on": "result.a > 3"}},
    "state_output": {"action": {"set": 1}, "go": {"on": "true"}, "output": {"a": X}},
}


def pipeline(step: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    steps = [
        {"id": "first", "set": 1, "on_error": {"compensate": "undo"}},
        {"id": "it", **step},
        {"id": "undo", "set": "undone"},
    ]
    return {"input": {"x": {}}, "steps": steps, **keys}


def machine(action: Mapping[str, Any], go: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    start = {
        "action": action,
        "timeout": {"after": 0.1, "take": "stop"},
        "transitions": {"go": {"to": "end", **go}, "stop": {"to": "stopped"}},
    }
    states = {"start": start, "end": {"kind": "success"}, "stopped": {"kind": "failure"}}
    return {"input": {"x": {}}, "states": states, **keys}


FILE = yaml.safe_dump(
    {
        "allow": {"hosts": ["127.0.0.1:9"]},
        "servers": {"gone": {"command": ["false"]}},
        "workflows": {
            "child": {"input": {"x": {"type": ["string", "number"]}}, "steps": [{"id": "a", "set": "{{ input.x }}"}]},
            **{name: pipeline(step) for name, step in STEPS.items()},
            **{name: machine(**parts) for name, parts in MACHINES.items()},
            "output": pipeline({"set": 1}, output={"a": X, "b": f"a{X}"}),
            "subject": pipeline({"set": 1}, subject=X),
        },
    },
    sort_keys=False,
)
NAMES = sorted([*STEPS, *MACHINES, "output", "subject"])


def would_wait(name: str, value: object) -> bool:
    return name == "sleep" and (isinstance(value, int | float) or value == "5d")


async def run(engine: Engine, name: str, value: Json) -> None:
    try:
        task = await engine.submit(name, {"x": json.dumps(value)})
    except InvalidValue:
        assert name == "subject"
        return
    check(name, await engine.wait(task.id))


def check(name: str, view: View) -> None:
    if not view.task.is_error:
        return
    message = str(cast("Any", result_of(view))["message"])
    if name in MACHINES:
        starts = (f"workflow {name!r} ", "the output can't be evaluated: ", "the action of state 'start' failed: ")
        assert message.startswith(starts), message
        return
    assert message.startswith(("step 'it' failed (", "the output can't be evaluated: ")), message
    assert message.endswith("; undone by undo"), message


@settings(max_examples=max(settings().max_examples // 7, 1))
@given(st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES)))
def test_every_part_of_a_workflow_takes_or_refuses_any_value(values: Mapping[str, Json]) -> None:
    async def run_all() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with WorkflowHarness(Path(folder)).running(FILE) as engine:
                await asyncio.gather(
                    *(run(engine, name, value) for name, value in values.items() if not would_wait(name, value))
                )

    asyncio.run(run_all())
