"""No value may become part of a script or choose a program."""

import pytest

from raincheck.workflows import InvalidWorkflow
from raincheck.workflows.actions import run
from tests.support.workflows.harness import WorkflowHarness


@pytest.fixture(autouse=True)
def _every_command_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_there(*_: object) -> bool:
        return True

    monkeypatch.setattr(run, "is_command", is_there)


def faults(workflow_harness: WorkflowHarness, argv: str, stdin: str = "") -> list[tuple[str, str]]:
    """What is wrong with a command, and where."""
    steps = f"[{{id: it, run: {{argv: [{argv}], stdin: '{stdin}'}}}}]"
    workflow_harness.write(f"workflows: {{flow: {{input: {{x: {{default: 1}}}}, steps: {steps}}}}}")
    try:
        workflow_harness.load()
    except InvalidWorkflow as error:
        return [(fault.where, fault.message) for fault in error.diagnostics]
    return []


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        ("sh, -c, 'echo {{ input.x }}'", 2),
        ("/bin/bash, -xc, '{{ input.x }}'", 2),
        ("bash, -euo, pipefail, -c, 'echo {{ input.x }}'", 4),
        ("bash, -eoc, pipefail, 'echo {{ input.x }}'", 3),
        ("sh, -c, -x, --, 'echo {{ input.x }}'", 4),
        ("sh, '-x{{ input.x }}', 'echo'", 1),
        ("sh, '{{ input.x }}', -c, 'echo {{ input.x }}'", 3),
        ("env, sh, -c, 'echo {{ input.x }}'", 3),
        ("/usr/bin/env, -i, -u, A, B=1, 'C={{ input.x }}', sh, -c, 'echo {{ input.x }}'", 8),
        ("env, -S, 'sh -c', 'echo {{ input.x }}'", 3),
        ("env, '-Ssh -c', 'echo {{ input.x }}'", 2),
        ("env, -S, 'sh -c {{ input.x }}'", 2),
        ("env, '--split-string=-i A=1 sh', -c, 'echo {{ input.x }}'", 3),
        ("env, python3, -W, ignore, -Bc, 'print({{ input.x }})'", 5),
        ("env, python3.12, '-cprint({{ input.x }})'", 2),
        ("env, perl, -lane, 'print {{ input.x }}'", 3),
        ("env, perl, -e, 'print 1', -e, 'print {{ input.x }}'", 5),
        ("env, ruby, -r, json, -e, 'puts {{ input.x }}'", 5),
        ("env, node, --eval, 'f({{ input.x }})'", 3),
        ("env, node, '--eval=f({{ input.x }})'", 2),
        ("env, fish, --command, 'echo {{ input.x }}'", 3),
        ("env, zsh, -c, 'echo {{ input.x }}'", 3),
        ("sudo, -u, me, sh, -c, 'echo {{ input.x }}'", 5),
        ("timeout, 5, nice, -n, 5, /bin/bash, -c, 'echo {{ input.x }}'", 7),
        ("xargs, '-0', env, A=1, sh, -c, 'echo {{ input.x }}'", 6),
        ("busybox, sh, -c, 'echo {{ input.x }}'", 3),
        ("timeout, 5, env, -S, 'sh -c', '{{ input.x }}'", 5),
        ("sudo, -u, python, bash, -c, '{{ input.x }}'", 5),
        ("flock, lock, -c, '{{ input.x }}'", 3),
        ("su, me, -c, '{{ input.x }}'", 3),
        ("ssh, host, 'echo {{ input.x }}'", 2),
        ("find, ., -exec, sh, -c, 'echo {{ input.x }}', ';'", 5),
        ("awk, -v, a=1, '{{ input.x }}'", 3),
        ("sed, -n, 's/a/{{ input.x }}/'", 2),
        ("php, -r, 'f({{ input.x }});'", 2),
    ],
)
def test_no_value_becomes_part_of_a_script(workflow_harness: WorkflowHarness, argv: str, place: int) -> None:
    ((where, message),) = faults(workflow_harness, argv)
    assert where == f"workflows.flow.steps.it.run.argv.{place}"
    assert "use `shell:` with `env:`, or pass the value as a further argument" in message


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        ("env, '{{ input.x }}'", 1),
        ("env, A=1, '{{ input.x }}', sh", 2),
        ("timeout, 5, '{{ input.x }}'", 2),
        ("timeout, '{{ input.x }}', make", 1),
        ("nice, -n, 5, '{{ input.x }}'", 3),
        ("sudo, -u, me, A=1, '{{ input.x }}'", 4),
        ("xargs, '{{ input.x }}'", 1),
        ("sh, '{{ input.x }}'", 1),
        ("sh, 'scripts/{{ input.x }}'", 1),
        ("python3, -u, '{{ input.x }}'", 2),
    ],
)
def test_no_value_becomes_the_program_that_a_wrapper_runs(
    workflow_harness: WorkflowHarness, argv: str, place: int
) -> None:
    ((where, message),) = faults(workflow_harness, argv)
    assert where == f"workflows.flow.steps.it.run.argv.{place}"
    assert "callers must not choose the program" in message


@pytest.mark.parametrize(
    "argv",
    [
        """sh, -c, 'echo "$0"', '{{ input.x }}'""",
        "sh, build.sh, -c, '{{ input.x }}'",
        "sh, -e, build.sh, -c, 'a {{ input.x }}'",
        "sh, -euo, pipefail, build.sh, '-c{{ input.x }}'",
        "env, 'A={{ input.x }}', sh, -c, 'echo $A'",
        "env, python3, -m, tool, -c, '{{ input.x }}'",
        "env, python3, -u, tool.py, -c, '{{ input.x }}'",
        "env, python3, -c, 'pass', -c, '-o{{ input.x }}'",
        "env, perl, -Ilib, tool.pl, -e, '{{ input.x }}'",
        "env, node, '--max-old-space-size={{ input.x }}', app.js",
        "grep, -e, '{{ input.x }}'",
        "timeout, '{{ input.x }}s', make, '{{ input.x }}'",
        "sudo, -u, me, make, '{{ input.x }}'",
        "sed, -f, script, '{{ input.x }}'",
        "awk, -v, 'a={{ input.x }}', 'script', '{{ input.x }}'",
        "find, '{{ input.x }}', -name, a",
        "ssh, '{{ input.x }}.example.org', uptime",
    ],
)
def test_values_may_be_arguments_of_a_script(workflow_harness: WorkflowHarness, argv: str) -> None:
    assert not faults(workflow_harness, argv)


@pytest.mark.parametrize(
    "argv", ["sh", "bash, -eu", "sh, -s, '{{ input.x }}'", "env, python3, -", "sudo, bash", "python3, -u", "node, -, a"]
)
def test_no_value_on_standard_input_is_read_as_a_script(workflow_harness: WorkflowHarness, argv: str) -> None:
    ((where, message),) = faults(workflow_harness, argv, "echo {{ input.x }}")
    assert where == "workflows.flow.steps.it.run.stdin"
    assert "reads its script from there: give it a constant one" in message
    assert not faults(workflow_harness, argv, "echo constant")


@pytest.mark.parametrize("argv", ["cat", "sh, build.sh", "sh, -c, cat", "python3, -m, json.tool", "sudo, tee, file"])
def test_values_may_be_the_standard_input_of_a_script(workflow_harness: WorkflowHarness, argv: str) -> None:
    assert not faults(workflow_harness, argv, "{{ input.x }}")
