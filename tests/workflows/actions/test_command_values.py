"""No caller runs code of their own: which values a command takes, and which it is refused."""

import pytest

from raincheck.workflows import InvalidWorkflow
from raincheck.workflows.actions import run
from raincheck.workflows.actions.command_values import (
    CONSTANT_PROGRAM,
    NOT_AFTER_OPTION,
    ONLY_TYPED,
    WHOLE_ARGUMENT,
)
from tests.support.workflows.harness import WorkflowHarness

INPUTS = r"""
      x: {type: string}
      any: {default: 1}
      list: {type: array, items: {enum: [a, b]}}
      number: {type: [integer, number, boolean]}
      choice: {enum: [a, b, 1]}
      tag: {type: string, pattern: '^v[0-9]+(\.[0-9]+)*$'}
      nested: {type: object, properties: {n: {type: integer}, x: {type: string}}}
"""


@pytest.fixture(autouse=True)
def _every_command_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_there(*_: object) -> bool:
        return True

    monkeypatch.setattr(run, "is_command", is_there)


def faults(workflow_harness: WorkflowHarness, command: str, inputs: str = INPUTS) -> list[tuple[str, str]]:
    """What is wrong with a command, and where."""
    workflow_harness.write(f"""raincheck: 1
allow: {{env: [TOOL, FLAGS]}}
workflows:
  flow:
    input: {inputs}
    steps:
      - {{id: first, set: 1}}
      - {{id: it, run: {{{command}}}}}
""")
    try:
        workflow_harness.load()
    except InvalidWorkflow as error:
        return [(fault.where.removeprefix("workflows.flow.steps.it.run"), fault.message) for fault in error.diagnostics]
    return []


@pytest.mark.parametrize(
    "program",
    [
        "{{ input.x }}",
        "{{ input.choice }}",
        "{{ input.number }}",
        "{{ input.x | int }}",
        "./{{ input.x | length }}.sh",
        "{{ env.TOOL }}{{ input.choice }}",
        "{{ 'sh' if input.x else 'ls' }}",
        "{{ input.x == 'a' }}",
        "{{ [env.TOOL, input.x] }}",
        "{{ env.get(input.x) }}",
        "{{ steps.first.result }}",
    ],
)
@pytest.mark.parametrize("more", ["", ", unsafe: true"])
def test_a_value_never_chooses_the_program(workflow_harness: WorkflowHarness, program: str, more: str) -> None:
    found = faults(workflow_harness, f'argv: ["{program}", a]{more}')
    assert ("", CONSTANT_PROGRAM) in found


@pytest.mark.parametrize(
    ("argv", "place"),
    [
        # The programs of the report.
        ("env, --, echo, '{{ input.x }}'", 3),
        ("timeout, --, 5, sort, '{{ input.x }}'", 4),
        ("psql, -c, '{{ input.x }}'", 2),
        ("docker, exec, c, sh, -c, 'echo {{ input.x }}'", 5),
        ("perl, '-M{{ input.x }}', -e, 1", 1),
        ("env, 'X={{ input.x }}', sh, -c, 'echo $X'", 1),
        ("bash, --rcfile, '{{ input.x }}', -i, -c, 'true'", 2),
        ("python3, -m, '{{ input.x }}'", 2),
        ("node, --require, '{{ input.x }}', -e, 1", 2),
        ("node, --import, '{{ input.x }}', -e, 1", 2),
        ("awk, -f, '{{ input.x }}'", 2),
        ("ssh, '-oProxyCommand={{ input.x }}', host, ls", 1),
        # Scripts, and what a launcher runs.
        ("sh, -c, 'echo {{ input.x }}'", 2),
        ("sh, -c, 'echo $0', '{{ input.x }}'", 3),
        ("/bin/bash, -xc, '{{ input.x }}'", 2),
        ("find, ., -exec, sh, -c, 'echo {{ input.x }}', ';'", 5),
        ("xargs, '{{ input.x }}'", 1),
        ("sudo, -u, me, make, '{{ input.x }}'", 4),
        ("sed, -n, 's/a/{{ input.x }}/'", 2),
        ("awk, -v, 'a={{ input.x }}', script", 2),
        ("timeout, '{{ input.x }}', make", 1),
        ("jq, '{{ input.x }}'", 1),
        ("make, '{{ input.x }}'", 1),
        ("ts-node, '{{ input.x }}'", 1),
        # However they are named.
        ("BASH, '{{ input.x }}'", 1),
        ("bash-5.2, '{{ input.x }}'", 1),
        ("python3.12-dbg, '{{ input.x }}'", 1),
        ("../bin/sqlite3.exe, '{{ input.x }}'", 1),
        ("'{{ env.TOOL }}', '{{ input.x }}'", 1),
        ("'{{ [\"sh\", \"-c\"] }}', '{{ input.x }}'", 1),
        # Something else than a constant script file is first.
        ("sh, '{{ input.x }}'", 1),
        ("sh, 'scripts/{{ input.x }}'", 1),
        ("sh, '{{ env.TOOL }}', '{{ input.x }}'", 2),
        ("sh, build, '{{ input.x }}'", 2),
        ("sh, -e, build.sh, '{{ input.x }}'", 3),
        ("bash, +x, build.sh, '{{ input.x }}'", 3),
        ("node, inspect, '{{ input.x }}'", 2),
        ("sh, ../../dev/fd/0, '{{ input.x }}'", 2),
        ("deno, run.ts, '{{ input.x }}'", 2),
    ],
)
def test_a_program_that_runs_code_takes_no_untyped_value(
    workflow_harness: WorkflowHarness, argv: str, place: int
) -> None:
    ((where, message),) = faults(workflow_harness, f"argv: [{argv}]")
    assert where == f".argv.{place}"
    assert message.endswith(ONLY_TYPED)
    assert not faults(workflow_harness, f"argv: [{argv.replace('input.x', 'input.tag')}]")
    assert not faults(workflow_harness, f"argv: [{argv}], unsafe: true")


@pytest.mark.parametrize(
    "argv",
    [
        "xargs, '-I{}', sh, -c, 'echo got {}'",
        "xargs, env",
        "sqlite3, ':memory:'",
        "make, -f, '-'",
        "tclsh",
        "sh",
        "bash, -eu",
        "sh, -c, cat",
        "python3, -m, json.tool",
        "sh, /dev/stdin",
        "sudo, tee, file",
        "'{{ env.TOOL }}'",
    ],
)
def test_a_program_that_runs_code_reads_no_untyped_value(workflow_harness: WorkflowHarness, argv: str) -> None:
    for stdin, where in (
        ("'echo {{ input.x }}'", ".stdin"),
        ("{a: ['{{ input.any }}']}", ".stdin.a.0"),
        ("['{{ input.list }}']", ".stdin.0"),
    ):
        ((found, message),) = faults(workflow_harness, f"argv: [{argv}], stdin: {stdin}")
        assert found == where
        assert message.endswith(ONLY_TYPED)
        assert not faults(workflow_harness, f"argv: [{argv}], stdin: {stdin}, unsafe: true")
    assert not faults(workflow_harness, f"argv: [{argv}], stdin: 'echo constant {{{{ input.number }}}}'")


@pytest.mark.parametrize("argv", ["cat", "tee, --, file", "./tool", "sh, build.sh", "/usr/bin/python3, ./tool.py, -v"])
def test_other_programs_read_any_value(workflow_harness: WorkflowHarness, argv: str) -> None:
    assert not faults(workflow_harness, f"argv: [{argv}], stdin: '{{{{ input.x }}}}'")


def test_a_script_in_a_folder_that_a_value_chooses_takes_no_untyped_value(workflow_harness: WorkflowHarness) -> None:
    command = "argv: [sh, build.sh, '{{ input.x }}'], cwd: "
    assert not faults(workflow_harness, f"{command} scripts")
    ((where, _),) = faults(workflow_harness, f"{command} '{{{{ input.x }}}}'")
    assert where == ".argv.2"


@pytest.mark.parametrize(
    ("argv", "place", "fault"),
    [
        ("git, -c, 'core.pager={{ input.x }}', log", 2, WHOLE_ARGUMENT),
        ("git, log, '{{ input.x }}..HEAD'", 2, WHOLE_ARGUMENT),
        ("cp, 'records/{{ input.x }}', out", 1, WHOLE_ARGUMENT),
        ("echo, '{{ input.tag }}{{ input.x }}'", 1, WHOLE_ARGUMENT),
        ("./tool, '--out={{ input.x }}'", 1, WHOLE_ARGUMENT),
        ("git, -c, '{{ input.x }}', log", 2, NOT_AFTER_OPTION.format("-c")),
        ("tar, --to-command, '{{ input.x }}'", 2, NOT_AFTER_OPTION.format("--to-command")),
        ("sh, build.sh, -c, '{{ input.x }}'", 3, NOT_AFTER_OPTION.format("-c")),
    ],
)
def test_an_untyped_value_is_a_whole_argument_and_follows_no_option(
    workflow_harness: WorkflowHarness, argv: str, place: int, fault: str
) -> None:
    assert faults(workflow_harness, f"argv: [{argv}]") == [(f".argv.{place}", fault)]
    assert not faults(workflow_harness, f"argv: [{argv.replace('input.x', 'input.number')}]")
    assert not faults(workflow_harness, f"argv: [{argv}], unsafe: true")


@pytest.mark.parametrize(
    "argv",
    [
        "git, tag, '{{ input.x }}'",
        "grep, -r, --, '{{ input.x }}', .",
        "sort, --key=2, '{{ input.x }}'",
        "cat, '-', '{{ input.x }}'",
        "echo, '{{ input.x }}', '{{ input.any }}', '{{ steps.first.result }}'",
        "./release.sh, '{{ input.x }}'",
        "python3, tool.py, '{{ input.x }}'",
        "sh, scripts/build, '{{ input.x }}'",
        "/usr/bin/perl, tool.pl, --, '{{ input.x }}'",
        "sort, '{{ env.FLAGS }}', '{{ input.x }}'",
        "'{{ env.TOOL }}', '-x{{ env.FLAGS }}'",
    ],
)
def test_other_programs_take_any_value_as_an_argument_of_its_own(workflow_harness: WorkflowHarness, argv: str) -> None:
    assert not faults(workflow_harness, f"argv: [{argv}]")


@pytest.mark.parametrize(
    "value",
    [
        "input.number",
        "input.choice",
        "input['tag']",
        "input.nested.n",
        "input.x | int",
        "input.list | length",
        "input.x == 'a'",
        "not input.x",
        "input.x is defined",
        "'--all' if input.x else ('--new' if input.any else '')",
    ],
)
def test_a_value_is_typed(workflow_harness: WorkflowHarness, value: str) -> None:
    assert not faults(workflow_harness, f'argv: [sh, -c, "echo {{{{ {value} }}}}"]')


@pytest.mark.parametrize(
    "value",
    [
        "input.x",
        "input.any",
        "input.list",
        "input.list[0]",
        "input.nested",
        "input.nested.x",
        "input.nested.other",
        "input",
        "input.get('tag')",
        "input.tag + input.x",
        "input.x | int(input.x)",
        "input.x | int(default=input.x)",
        "input.x | int(*input.list)",
        "input.x | int(**input.nested)",
        "input.x | default(1)",
        "input.number if input.tag else input.x",
        "'a' if input.tag else input.x",
        "input.x and 1",
        "input.tag | replace('v', input.x)",
        "[1] | map('int', input.x) | list",
        "steps.first.result",
    ],
)
def test_a_value_is_not_typed(workflow_harness: WorkflowHarness, value: str) -> None:
    ((where, message),) = faults(workflow_harness, f'argv: [sh, -c, "echo {{{{ {value} }}}}"]')
    assert where == ".argv.2"
    assert message.endswith(ONLY_TYPED)


@pytest.mark.parametrize(
    "schema",
    [
        "{type: [number, string]}",
        "{type: [number, 'null']}",
        "{anyOf: [{type: number}]}",
        "{enum: [a, [b]]}",
        "{const: null}",
        "{$ref: '#/properties/a', type: number}",
        "{$schema: 'http://json-schema.org/draft-07/schema#', type: number}",
        "{type: string, minLength: 3}",
        "{type: string, format: date}",
        "{pattern: '^a$'}",
    ],
)
def test_a_schema_does_not_type_its_value(workflow_harness: WorkflowHarness, schema: str) -> None:
    found = faults(workflow_harness, "argv: [sh, -c, 'echo {{ input.a }}']", f"{{a: {schema}}}")
    assert (".argv.2", f"'sh' {ONLY_TYPED}") in found


@pytest.mark.parametrize(
    "pattern",
    [
        "^[a-z0-9-]+$",
        r"^[\w.-]{1,20}$",
        r"^\d{4}-\d\d$",
        r"^v[0-9]+(?:\.[0-9]+)*(-(alpha|beta|rc)\.?[1-9]?)?$",
        "^(a|b(c|d))?$",
        r"^[-a-fA-F0-9 ]*?$",
        r"^\(\[\]\)$",
    ],
)
def test_a_pattern_that_lists_its_characters_types_its_value(workflow_harness: WorkflowHarness, pattern: str) -> None:
    inputs = f"{{a: {{type: string, pattern: '{pattern}'}}}}"
    assert not faults(workflow_harness, "argv: [sh, -c, 'echo {{ input.a }}']", inputs)


@pytest.mark.parametrize(
    "pattern",
    [
        "v[0-9]+",
        "^v[0-9]+",
        "v[0-9]+$",
        "^v|w$",
        "^(v)|(w)$",
        r"^v\$",
        "^.*$",
        "^.+\\.txt$",
        r"^\S+$",
        r"^[^;]+$",
        r"^[\s\S]*$",
        r"^\D$",
        "^[ -~]+$",
        "^[A-z]+$",
        "(?m)^a$",
        "^(?m:a)$",
        "(?x)^a # ( \n | b # ) \n$",
        r"^[\\]|[a]$",
        r"^(.\(b|c)d$",
        "^a$|^b$",
    ],
)
def test_a_pattern_that_allows_any_character_does_not_type_its_value(
    workflow_harness: WorkflowHarness, pattern: str
) -> None:
    quoted = pattern.replace("\\", "\\\\").replace("\n", "\\n")
    found = faults(
        workflow_harness, "argv: [sh, -c, 'echo {{ input.a }}']", f'{{a: {{type: string, pattern: "{quoted}"}}}}'
    )
    assert (".argv.2", f"'sh' {ONLY_TYPED}") in found


@pytest.mark.anyio
async def test_a_typed_text_has_no_line_break_at_its_end(workflow_harness: WorkflowHarness) -> None:
    """With one, `rm -r {{ input.a }}/cache` would remove all of it, and then run `/cache`."""
    async with workflow_harness.running("""
    workflows:
      flow:
        input: {a: {type: string, pattern: '^[a-z]+$'}}
        steps: [{id: it, run: [sh, -c, "echo rm -r {{ input.a }}/cache"]}]
    """) as engine:
        with pytest.raises(ValueError, match="does not match"):
            await engine.submit("flow", {"a": "home\n"})


def test_items_and_data_are_not_typed(workflow_harness: WorkflowHarness) -> None:
    workflow_harness.write("""
    workflows:
      each:
        input: {list: {type: array, items: {type: integer}}}
        steps: [{id: it, for_each: input.list, run: [sh, -c, "echo {{ item }}"]}]
      machine:
        input: {number: {type: integer}}
        states:
          start:
            action: {run: [sh, -c, "echo {{ data.number }} {{ input.number }} {{ state }}"]}
            transitions: {go: {to: end}}
          end: {kind: success}
    """)
    with pytest.raises(InvalidWorkflow) as raised:
        workflow_harness.load()
    assert [fault.where for fault in raised.value.diagnostics] == [
        "workflows.each.steps.it.run.2",
        "workflows.machine.states.start.action.run.2",
    ]


LOADERS = (
    "PATH HOME LD_PRELOAD DYLD_INSERT_LIBRARIES BASH_ENV ENV IFS PS4 NODE_OPTIONS PYTHONPATH PYTHONSTARTUP PERL5LIB "
    "PERL5OPT RUBYOPT GIT_SSH_COMMAND GIT_CONFIG_COUNT GIT_DIR GIT_EXTERNAL_DIFF EDITOR PAGER MANPAGER LESSOPEN LESS "
    "JAVA_TOOL_OPTIONS _JAVA_OPTIONS MAKEFLAGS TAR_OPTIONS RSYNC_RSH npm_config_script_shell OPENSSL_CONF KUBECONFIG "
    "XDG_CONFIG_HOME GOFLAGS RUSTC_WRAPPER SSH_ASKPASS PIP_INDEX_URL DOCKER_HOST CC WGETRC LUA_PATH LUA_INIT"
)


@pytest.mark.parametrize("name", LOADERS.split())
def test_a_variable_that_loads_code_takes_no_untyped_value(workflow_harness: WorkflowHarness, name: str) -> None:
    for command in ("argv: [ls]", "shell: ls"):
        assert faults(workflow_harness, f"{command}, env: {{{name}: 'a{{{{ input.x }}}}'}}") == [
            (f".env.{name}", f"the variable {name} {ONLY_TYPED}")
        ]
    for value in ("constant", "{{ input.number }}", "{{ env.TOOL }}"):
        assert not faults(workflow_harness, f"argv: [ls], env: {{{name}: '{value}'}}")


@pytest.mark.parametrize(
    "name",
    ["TAG", "NAME", "INPUT", "FILE", "REPO_PATH", "GIT_AUTHOR_NAME", "MESSAGE", "PERSON", "REGION", "GOAL", "URL"],
)
def test_other_variables_take_any_value(workflow_harness: WorkflowHarness, name: str) -> None:
    assert not faults(workflow_harness, f"shell: ls, env: {{{name}: 'a{{{{ input.x }}}}'}}")


def test_an_unsafe_step_is_named_in_its_definition(workflow_harness: WorkflowHarness) -> None:
    workflow_harness.write("""
    workflows:
      flow:
        steps:
          - {id: a, run: [ls]}
          - {id: b, run: {argv: [ls], unsafe: true}}
      machine:
        states:
          start: {action: {run: {argv: [ls], unsafe: true}}, transitions: {go: {to: end}}}
          end: {kind: success}
    """)
    definitions = workflow_harness.load().definitions
    assert {name: list(found.unsafe_steps) for name, found in definitions.items()} == {
        "flow": ["b"],
        "machine": ["start"],
    }
