"""State machines from YAML run as declared, and every error of a file is reported with its line."""

import asyncio
from pathlib import Path
from textwrap import dedent

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.errors import InvalidValue, TransitionRefused
from raincheck.workflows import InvalidWorkflow, Machine, load_workflows
from tests.support.engine.harness import EngineHarness, outcome_of
from tests.support.workflows.example_machine import end_of, reach_state, state_of

pytestmark = pytest.mark.anyio

VALIDATION = """
raincheck: 1
workflows:
  validation:
    description: Validate records, and try again before giving up.
    input:
      limit: {type: integer, default: 2}
      name: {type: string}
    subject: "{{ input.name }}"
    states:
      checking:
        action: {set: "{{ data.get('tries', 0) + 1 }}"}
        transitions:
          retry: {to: resting, on: "result < input.limit", set: {tries: "{{ result }}"}}
          pass: {to: approving, on: "true", set: {tries: "{{ result }}"}}
      resting:
        timeout: {after: 0.01, take: again}
        transitions:
          again: {to: checking}
      approving:
        transitions:
          approve: {to: stored, guard: "data.tries >= input.limit and data.by == 'ann'"}
          reject: {to: refused, requires_reason: true}
          drop: {to: dropped}
      stored: {kind: success}
      refused: {kind: failure}
      dropped: {kind: cancel}
    output: {name: "{{ input.name }}", tries: "{{ data.tries }}"}
"""


OUTPUT = """    output: "{{ data.z }}"
            states:"""


def load(folder: Path, text: str) -> Machine:
    file = folder / "workflows.yaml"
    file.write_text(dedent(text))
    (machine,) = load_workflows(file).definitions.values()
    assert isinstance(machine, Machine)
    return machine


async def add(harness: EngineHarness, folder: Path, text: str) -> None:
    harness.toolbox.add((await asyncio.to_thread(load, folder, text)).tool())


def faults(folder: Path, text: str) -> list[str]:
    file = folder / "workflows.yaml"
    file.write_text(dedent(text))
    with pytest.raises(InvalidWorkflow) as wrong:
        load_workflows(file)
    return [str(fault).removeprefix(f"{file}:") for fault in wrong.value.diagnostics]


async def test_an_instance_follows_outcomes_guards_and_timeouts_of_its_file(
    harness: EngineHarness, tmp_path: Path
) -> None:
    await add(harness, tmp_path, VALIDATION)
    async with harness.running() as engine:
        task = await engine.submit("validation", {"name": "orders", "limit": 3})
        assert (state_of(task), task.subject) == ("checking", "orders")
        await reach_state(harness, task.id, "approving")
        closed = {one.action: one.closed for one in await engine.instances.available_transitions(task.id)}
        assert "data.by" in str(closed["approve"]) or "by" in str(closed["approve"])
        assert closed["drop"] is None
        with pytest.raises(TransitionRefused):
            await engine.instances.transition(task.id, "approve", data={"by": "bob"})
        await engine.instances.transition(task.id, "approve", data={"by": "ann"})
        view = await end_of(harness, task.id)
        assert (view.task.phase, outcome_of(view)) == (Phase.COMPLETED, {"name": "orders", "tries": 3})


async def test_an_actions_error_can_pick_a_transition_or_else_fails_the_instance(
    harness: EngineHarness, tmp_path: Path
) -> None:
    text = """
        raincheck: 1
        workflows:
          caught:
            states:
              trying:
                action: {run: [sh, -c, "exit 3"]}
                transitions:
                  give_up: {to: lost, on: failed, set: {why: "{{ error.kind }}"}}
                  go: {to: done, on: not failed}
              done: {kind: success}
              lost: {kind: failure}
    """
    await add(harness, tmp_path, text)
    await add(harness, tmp_path, text.replace("caught:", "uncaught:").replace("on: failed,", ""))
    async with harness.running():
        task, error = await harness.failure_of("caught")
        assert (state_of(task), error["data"]["data"]) == ("lost", {"why": "exit"})
        ended = await end_of(harness, (await harness.engine.submit("uncaught")).id)
        assert ended.task.is_error
        assert "the action of state 'trying' failed" in str(outcome_of(ended))


async def test_a_stuck_instance_says_what_to_do(harness: EngineHarness, tmp_path: Path) -> None:
    text = """
        raincheck: 1
        workflows:
          large:
            states:
              filling:
                action: {run: {shell: "head -c 70000 /dev/zero | tr '\\\\0' x"}}
                transitions: {go: {to: done, on: "true", set: {x: "{{ result.stdout }}"}}}
              done: {kind: success}
    """
    await add(harness, tmp_path, text)
    absent = text.replace("large:", "absent:").replace("{{ result.stdout }}", "y").replace("    states:", OUTPUT)
    await add(harness, tmp_path, absent)
    async with harness.running():
        _, error = await harness.failure_of("large")
        assert error["message"] == (
            "workflow 'large' is stuck in state 'filling': after 'go', the data of the instance would have 70,008 "
            "bytes, but only 65,536 are allowed: store large values in a file or an artifact"
        )
        ended = await end_of(harness, (await harness.engine.submit("absent")).id)
        assert ended.task.is_error
        assert "the output can't be evaluated: '{{ data.z }}' can't be evaluated: the data has no 'z' yet" in str(
            outcome_of(ended)
        )


async def test_invalid_arguments_are_refused_before_the_instance_starts(harness: EngineHarness, tmp_path: Path) -> None:
    await add(harness, tmp_path, VALIDATION)
    async with harness.running(works=False) as engine:
        with pytest.raises(InvalidValue, match="name"):
            await engine.submit("validation", {"limit": 3})


def test_every_error_of_a_state_machine_is_reported_with_its_line(tmp_path: Path) -> None:
    text = """\
        raincheck: 1
        workflows:
          wrong:
            states:
              a:
                initial: true
                action: {run: [no-such-command-anywhere]}
                timeout: {after: 5m, take: fly}
                transitions:
                  go: {to: nowhere}
                  guarded: {to: b, guard: "nothing.here"}
                  broken: {to: b, guard: "1 +"}
              b:
                initial: true
                transitions:
                  back: {to: a, on: result}
              alone: {kind: success}
              end: {kind: finish}
    """
    found = faults(tmp_path, text)
    expected = {
        7: "no-such-command-anywhere",
        8: "takes 'fly'",
        10: "leads to 'nowhere'",
        11: "there is no name 'nothing'",
        12: "'1 +'",
        14: "only one state can be",
        16: "the state has none",
        18: "'success', 'failure' or 'cancel'",
    }
    lines = {int(one.split(":")[0]) for one in found}
    assert lines == set(expected), found
    for line, part in expected.items():
        assert any(one.startswith(f"{line}:") and part in one for one in found), (line, found)


@pytest.mark.parametrize(
    "wrong",
    ["go: {to: b, requires_reason: maybe}", "go: b", "go: {to: b}}, timeout: 5m, x: {", "go: {to: b, set: [x]}"],
)
def test_consequences_of_an_error_are_not_reported(tmp_path: Path, wrong: str) -> None:
    text = f"""\
        raincheck: 1
        workflows:
          wrong: {{states: {{a: {{transitions: {{{wrong}}}}}, b: {{kind: success}}}}}}
    """
    found = faults(tmp_path, text)
    assert all("states.a." in one for one in found), found


def test_an_unreachable_state_is_an_error(tmp_path: Path) -> None:
    text = """\
        raincheck: 1
        workflows:
          wrong: {states: {a: {transitions: {go: {to: b}}}, b: {kind: success}, alone: {kind: failure}}}
    """
    (found,) = faults(tmp_path, text)
    assert "states.alone: no transition leads to it" in found


def test_unknown_keys_of_a_state_are_errors(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        """\
        raincheck: 1
        workflows:
          wrong:
            states:
              a: {transition: {go: {to: b}}}
              b: {kind: success}
        """,
    )
    assert any(one.startswith("5:") and "did you mean transitions?" in one for one in found), found


def test_any_change_to_a_machine_changes_its_version(tmp_path: Path) -> None:
    first, same = load(tmp_path, VALIDATION), load(tmp_path, VALIDATION)
    changed = load(tmp_path, VALIDATION.replace("data.tries >= input.limit", "data.tries > input.limit"))
    assert first.version == same.version != changed.version
    assert load(tmp_path, VALIDATION.replace("states:", 'version: "7"\n    states:', 1)).version == "7"
