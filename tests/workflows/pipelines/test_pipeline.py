"""All errors of a pipeline are reported at once, with file and line, before anything runs."""

from pathlib import Path

import pytest

from raincheck.workflows import InvalidWorkflow, load_workflows
from tests.support.workflows import step_functions
from tests.support.workflows.harness import WorkflowHarness

FUNCTIONS = step_functions.__name__
PLAIN = "workflows: {a: {steps: [{id: a, set: 1}]}}"


def faults(workflow_harness: WorkflowHarness, text: str) -> dict[str, str]:
    """What is wrong, by where."""
    workflow_harness.write(text)
    with pytest.raises(InvalidWorkflow) as raised:
        workflow_harness.load()
    return {fault.where: f"{fault.line}: {fault.message}" for fault in raised.value.diagnostics}


def step_faults(workflow_harness: WorkflowHarness, step: str, head: str = "") -> dict[str, str]:
    """What is wrong with a step that has another before it and one beside it."""
    text = (
        f"{head}\nworkflows:\n  flow:\n    input: {{x: {{default: 1}}}}\n    steps:\n"
        f"      - {{id: first, set: 1}}\n      - {{id: it, needs: [first], {step}}}\n"
        f"      - {{id: beside, needs: [], set: 1}}\n"
    )
    found = faults(workflow_harness, text)
    return {where.removeprefix("workflows.flow.steps."): message.partition(": ")[2] for where, message in found.items()}


def test_all_errors_are_reported_at_once_with_their_lines(workflow_harness: WorkflowHarness) -> None:
    found = faults(
        workflow_harness,
        """
        allow: {folder: x}
        workflows:
          flow:
            inputs: {}
            input:
              a: {type: strin}
              task: {type: string}
            steps:
              - id: one
                run: [no-such-command-at-all]
              - id: two
                sett: 5
              - id: one
                set: "{{ steps.three.result }}"
              - id: three
                needs: [two, nobody]
                timeout: soon
                set: 1
              - id: four
                set: "{{ nothing }}"
        """,
    )
    assert found == {
        "allow.folder": "3: unknown key: did you mean folders?",
        "workflows.flow.inputs": "6: unknown key: did you mean input?",
        "workflows.flow.input.a.type": (
            "8: this is not a valid JSON Schema: 'strin' is not valid under any of the given schemas"
        ),
        "workflows.flow.input.task": "9: the input name 'task' is reserved: choose another name",
        "workflows.flow.steps.one.run": "12: there is no command 'no-such-command-at-all': install it, or check PATH",
        "workflows.flow.steps.two.sett": "14: unknown key: did you mean set?",
        "workflows.flow.steps.one.id": "15: another step has the id 'one' too: rename one of them",
        "workflows.flow.steps.one.set": (
            "16: step 'three' starts after this one has ended: move it up, and declare what it needs"
        ),
        "workflows.flow.steps.three.timeout": (
            "19: a duration is written like 30s, 5m, 2h or 1d, or as a number of seconds, not 'soon'"
        ),
        "workflows.flow.steps.three.needs.1": "18: there is no step 'nobody': the steps are four, one, three, two",
        "workflows.flow.steps.four.set": "22: there is no name 'nothing' here: use one of env, input, steps",
    }


@pytest.mark.parametrize(
    ("step", "where", "message"),
    [
        ("set: '{{ steps.gone.result }}'", "it.set", "there is no step 'gone'"),
        ("set: '{{ steps.beside.result }}'", "it.set", "may not have ended here"),
        ("set: '{{ steps.it.result }}'", "it.set", "step 'it' has not ended here: only other steps can use its result"),
        ("set: '{{ steps.first.stdout }}'", "it.set", "did you mean steps.first.result.stdout?"),
        ("set: '{{ steps.first.reslt }}'", "it.set", "did you mean steps.first.result?"),
        ("set: '{{ steps[input.x].result }}'", "it.set", "name the step"),
        ("set: '{{ input.y }}'", "it.set", "there is no input 'y': the inputs are x"),
        ("set: '{{ env.HOME }}'", "it.set", "add it to `allow.env`"),
        ("set: '{{ item }}'", "it.set", "there is no name 'item' here"),
        ("set: {a: [1, '{{ (1 }}']}", "it.set.a.1", "unexpected"),
        ("set: '{{ input.x '", "it.set", "a {{ is not closed: add }}"),
        ("set: 1, if: '{{ true }}'", "it.if", "write it without {{ and }}"),
        ("set: 1, if: 'a ==='", "it.if", "is not an expression"),
        ("set: 1, if: env.HOME", "it.if", "env can't be used here"),
        ("set: 1, for_each: item", "it.for_each", "there is no name 'item' here"),
        ("set: 1, for_each: 5", "it.for_each", "it must be text or a list, not 5"),
        ("set: 1, until: result", "it", "`until` needs `max_rounds`"),
        ("set: 1, every: 5s", "it", "need `until`"),
        ("set: 1, max_parallel: 2", "it", "need `for_each`"),
        (
            "set: 1, until: itm, max_rounds: 2",
            "it.until",
            "there is no name 'itm' here: use one of input, result, round",
        ),
        ("set: 1, on_error: {compensate: gone}", "it.on_error.compensate", "there is no step 'gone'"),
        ("set: 1, on_error: {compensate: it}", "it.on_error.compensate", "can't undo itself"),
        ("set: 1, on_error: stop", "it.on_error", "it must be fail, continue, or {compensate: ID}"),
        ("set: 1, retry: {attempts: 0}", "it.retry.attempts", "it must be at least 1, not 0"),
        ("set: 1, retry: {attempts: 2, on: [never]}", "it.retry.on.0", "it must be 'exit', 'timeout'"),
        ("set: 1, min_success_rate: 2, for_each: '[]'", "it.min_success_rate", "it must be at most 1, not 2"),
        ("set: 1, timeout: 5s", "it", "set takes no timeout"),
        ("set: 1, with: {a: 1}", "it", "`with` is only for python and workflow"),
        ("set: 1, sleep: 5", "it", "it has set and sleep: give it exactly one of"),
        ("if: true", "it", "it has no action: give it exactly one of"),
        ("run: null", "it", "run is empty"),
        ("run: echo hi", "it.run", "a command is a list of arguments, such as [git, status]"),
        ("run: []", "it.run", "it is empty"),
        ("set: 1, retry: 3", "it.retry", "it must be a mapping, not 3: write {attempts: 3}"),
        ("ask: Go on?", "it.ask", "write {message: …}"),
        ("ask: {message: a, schema: {type: object, properties: {}}}", "it.ask.schema", "write only the fields"),
        ("set: 1, if: input.x = 1", "it.if", "did you mean ==?"),
        ("python: os.getcwd", "it.python", "write module:function, such as os:getcwd"),
        ("run: {}", "it.run", "either argv or shell"),
        ("run: {argv: [echo], shell: ls}", "it.run", "either argv or shell"),
        ("run: ['{{ input.x }}']", "it.run", "callers must not choose the program"),
        ("run: [./gone]", "it.run", "there is no file './gone' in "),
        ("run: {shell: 'echo {{ input.x }}'}", "it.run.shell", "pass them through `env`"),
        ("run: {argv: [ls], cwd: ..}", "it.run.cwd", "add it to `allow.folders`"),
        ("run: [echo, '{{ nobody }}']", "it.run.1", "there is no name 'nobody'"),
        ("run: {argv: [echo], output: xml}", "it.run.output", "it must be 'text', 'json', 'lines' or 'bytes'"),
        ("run: {argv: [echo], max_output: lots}", "it.run.max_output", "a size is written like"),
        ("http: {url: 'https://evil.example/'}", "it.http.url", "add it to `allow.hosts`"),
        ("http: {url: 'https://evil.example/{{ input.x }}'}", "it.http.url", "add it to `allow.hosts`"),
        ("http: {url: 'http://[::1]:8080/'}", "it.http.url", "host '[::1]:8080' is not allowed"),
        ("http: {url: 'ftp://x'}", "it.http.url", "a URL must start with"),
        ("http: {}", "it.http.url", "it is missing"),
        ("http: {url: 'http://a/', json: 1, body: b}", "it.http", "either json or body"),
        ("python: nothing", "it.python", "is not valid"),
        ("python: 'no_such_module:f'", "it.python", "can't be imported: ModuleNotFoundError"),
        (f"python: '{FUNCTIONS}:gone'", "it.python", "can't be imported: AttributeError"),
        (f"python: '{FUNCTIONS}:not_a_function'", "it.python", "is not a function"),
        (
            "python: 'tests.support.workflows.step_functions:double', with: {m: 1}",
            "it.with",
            "the function does not accept these arguments",
        ),
        ("call: {server: s, tool: t}", "it.call.server", "there is no server 's': `servers` declares none"),
        ("workflow: gone", "it.workflow", "there is no workflow 'gone': the workflows are flow"),
        ("ask: {message: '{{ env.HOME }}'}", "it.ask.message", "env can't be used here"),
        ("ask: {message: hi, schema: {a: {type: 5}}}", "it.ask.schema.a.type", "this is not a valid JSON Schema"),
        ("ask: {message: hi, schema: {a: {type: object}}}", "it.ask.schema.a", "a form can't have this field"),
        ("ask: {message: hi, schema: {a: {type: array, items: {type: string}}}}", "it.ask.schema.a", "an enum"),
        ("sample: {prompt: a, messages: []}", "it.sample.messages", "it is empty"),
        ("sample: {}", "it.sample", "either a prompt or messages"),
        ("sleep: soon", "it.sleep", "a duration is written like"),
        ("sleep: 5s, timeout: 5s", "it", "sleep takes no timeout"),
        ("set: 1, artifact: ''", "it.artifact", "at least 1 character"),
    ],
)
def test_an_invalid_step_is_an_error(workflow_harness: WorkflowHarness, step: str, where: str, message: str) -> None:
    found = step_faults(workflow_harness, step)
    assert message in found.get(where, ""), found
    assert len(found) == 1


@pytest.mark.parametrize("host", ["*.example.org", "a:b", "a:0", "a:70000", "me@a", "[::1", "[x::1]", "a?b", "[a]:1:2"])
def test_a_host_that_no_request_can_have_is_an_error(workflow_harness: WorkflowHarness, host: str) -> None:
    assert list(faults(workflow_harness, f"allow: {{hosts: [b, '{host}']}}\n{PLAIN}")) == ["allow.hosts.1"]


def test_a_cycle_of_needs_is_reported_with_its_steps(workflow_harness: WorkflowHarness) -> None:
    found = faults(
        workflow_harness,
        """
        workflows:
          flow:
            steps:
              - {id: a, needs: [c], set: 1}
              - {id: b, needs: [a], set: 1}
              - {id: c, needs: [b], set: 1}
        """,
    )
    assert found == {"workflows.flow.steps.a.needs": "6: these steps wait for each other: a -> c -> b -> a"}


def test_a_cycle_of_workflows_is_reported_with_their_names(workflow_harness: WorkflowHarness) -> None:
    found = faults(
        workflow_harness,
        """
        workflows:
          a: {steps: [{id: x, workflow: b}]}
          b: {steps: [{id: x, set: 1}, {id: y, workflow: a}]}
          c: {steps: [{id: x, workflow: a}]}
        """,
    )
    assert found == {
        "workflows.a.steps.x.workflow": "4: this workflow runs itself without end: a -> b -> a",
        "workflows.b.steps.y.workflow": "5: this workflow runs itself without end: b -> a -> b",
    }


def test_a_cycle_of_workflows_may_include_state_machines(workflow_harness: WorkflowHarness) -> None:
    found = faults(
        workflow_harness,
        """
        workflows:
          a: {steps: [{id: x, workflow: b}]}
          b:
            states:
              first: {action: {workflow: a}, transitions: {go: {to: done, on: "true"}}}
              done: {kind: success}
          c:
            states:
              first: {action: {workflow: c}, transitions: {go: {to: done, on: "true"}}}
              done: {kind: success}
        """,
    )
    assert found == {
        "workflows.a.steps.x.workflow": "4: this workflow runs itself without end: a -> b -> a",
        "workflows.b.states.first.action.workflow": "7: this workflow runs itself without end: b -> a -> b",
        "workflows.c.states.first.action.workflow": "11: this workflow runs itself without end: c -> c",
    }


def test_compensating_steps_are_not_part_of_the_order(workflow_harness: WorkflowHarness) -> None:
    found = faults(
        workflow_harness,
        """
        workflows:
          flow:
            steps:
              - {id: a, set: 1, on_error: {compensate: undo}}
              - {id: undo, needs: [a], on_error: continue, set: 1}
              - {id: b, needs: [undo], set: 1}
        """,
    )
    assert {where.rpartition("steps.")[2] for where in found} == {"undo.needs", "undo.on_error", "b.needs.0"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raincheck: 2\nworkflows: {a: {steps: [{id: a, set: 1}]}}", "raincheck: it must be 1, not 2"),
        ("raincheck: 1\n", "workflows: it is missing"),
        ("raincheck: 1\nworkflows: {}", "workflows: it is empty"),
        ("raincheck: 1\nworkflows: {a: 5}", "workflows.a: it must be a mapping, not 5"),
        (
            "raincheck: 1\nworkflows: {a: {}}",
            "workflows.a.steps: it is missing: a workflow has `steps`",
        ),
        (
            "raincheck: 1\nworkflows: {a: {steps: [], states: {}}}",
            "workflows.a: it has both `steps`",
        ),
        ("raincheck: 1\nworkflows: {a: {steps: []}}", "workflows.a.steps: it is empty"),
        ("raincheck: 1\nworkflows: {a b: {steps: [{id: a, set: 1}]}}", "'a b' is not a valid name"),
        ("raincheck: 1\nworkflows: {a: {steps: [{id: a b, set: 1}]}}", "'a b' is not valid"),
        ("raincheck: 1\nservers: {s: {}}\nworkflows: {a: {steps: [{id: a, set: 1}]}}", "either a command or a url"),
        (
            "raincheck: 1\nworkflows: {a: {subject: '{{ steps }}', steps: [{id: a, set: 1}]}}",
            "there is no name 'steps'",
        ),
        ("raincheck: 1\nworkflows: {a: {output: '{{ steps.b }}', steps: [{id: a, set: 1}]}}", "there is no step 'b'"),
        (
            "raincheck: 1\nworkflows: {a: {input: {x: {type: integer, default: a}}, steps: [{id: a, set: 1}]}}",
            "the default",
        ),
        ("raincheck: 1\nworkflows: {a: {input: {x: 5}, steps: [{id: a, set: 1}]}}", "a JSON Schema is a mapping"),
        (f"raincheck: 1\nservers: {{s: {{command: [gone-gone]}}}}\n{PLAIN}", "there is no command 'gone-gone'"),
        (f"raincheck: 1\nservers: {{s: {{url: 'x'}}}}\n{PLAIN}", "servers.s.url: a URL must start with"),
        (
            f"raincheck: 1\nservers: {{s: {{url: 'https://x', headers: {{A: '{{{{ input.x }}}}'}}}}}}\n{PLAIN}",
            "no name 'input'",
        ),
        (f"raincheck: 1\nservers: {{s: {{command: [ls], headers: {{A: b}}}}}}\n{PLAIN}", "only a server with a url"),
        (
            f"raincheck: 1\nallow: {{hosts: ['https://x/']}}\n{PLAIN}",
            "allow.hosts.0: 'https://x/' is not valid",
        ),
        ("raincheck: 1\nworkflows: {a: {timeout: 0, steps: [{id: a, set: 1}]}}", "it must be at least 0.001, not 0"),
        (
            "raincheck: 1\nworkflows: {a: {input: {x: {pattern: '('}}, steps: [{id: a, set: 1}]}}",
            "the pattern '(' can't be used: unclosed group",
        ),
        ("raincheck: 1\nworkflows: {a: {steps: [{id: a, set: 1, on_error: {compensate: a}}]}}", "can't undo itself"),
        ("[1, 2]", "a file must be a mapping"),
        ("raincheck: 1\nworkflows: [1]", "workflows: it must be a mapping, not a list"),
    ],
)
def test_an_invalid_file_is_an_error(workflow_harness: WorkflowHarness, text: str, message: str) -> None:
    workflow_harness.file.write_text(text)
    with pytest.raises(InvalidWorkflow) as raised:
        workflow_harness.load()
    assert message in str(raised.value)


def test_a_file_without_its_first_line_is_still_checked(workflow_harness: WorkflowHarness) -> None:
    workflow_harness.file.write_text("workflows: {a: {steps: [{id: a, set: '{{ gone }}'}]}}")
    with pytest.raises(InvalidWorkflow) as raised:
        workflow_harness.load()
    missing, other = raised.value.diagnostics
    assert missing.message == "it is missing: start the file with `raincheck: 1`"
    assert other.where == "workflows.a.steps.a.set"


def test_arguments_for_another_workflow_are_checked_against_its_input(workflow_harness: WorkflowHarness) -> None:
    found = faults(
        workflow_harness,
        """
        workflows:
          child:
            input: {n: {type: integer}, many: {type: array, default: []}}
            steps: [{id: a, set: 1}]
          flow:
            input: {x: {type: string}}
            steps:
              - {id: good, workflow: child, with: {n: "{{ input.x }}", many: [1, "{{ input.x }}"]}}
              - {id: none, workflow: child}
              - {id: wrong, workflow: child, with: {n: five, m: 1}}
        """,
    )
    assert {where.rpartition("steps.")[2]: message for where, message in found.items()} == {
        "none.with": "11: workflow 'child' requires 'n': add it",
        "wrong.with.n": "12: 'five' is not of type 'integer'",
        "wrong.with.m": "12: workflow 'child' does not take 'm': it takes many, n",
    }


def test_commands_may_be_called_as_yaml_writes_true_and_false(workflow_harness: WorkflowHarness) -> None:
    workflow_harness.write("workflows: {a: {steps: [{id: a, run: [true]}, {id: b, run: [false], on_error: continue}]}}")
    assert workflow_harness.load()


def test_workflow_names_are_unique_in_a_folder(tmp_path: Path) -> None:
    for name in ("one.yaml", "two.yml"):
        (tmp_path / name).write_text("raincheck: 1\nworkflows: {same: {steps: [{id: a, set: 1}]}}\n")
    with pytest.raises(
        InvalidWorkflow, match=r"two\.yml:2: workflows\.same: a workflow with this name is in .*one\.yaml"
    ):
        load_workflows(tmp_path)


def test_workflows_of_a_folder_may_run_each_other(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("raincheck: 1\nworkflows: {a: {steps: [{id: x, workflow: b}]}}\n")
    (tmp_path / "two.yml").write_text("raincheck: 1\nworkflows: {b: {steps: [{id: x, set: 1}]}}\n")
    (tmp_path / "notes.txt").write_text("not YAML: [")
    assert set(load_workflows(tmp_path).definitions) == {"a", "b"}


def test_a_folder_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidWorkflow, match="this folder has no"):
        load_workflows(tmp_path)


def test_the_version_is_a_digest_of_the_definition(workflow_harness: WorkflowHarness) -> None:
    def version(step: str, more: str = "") -> str:
        workflow_harness.write(
            f"workflows: {{flow: {{{more} steps: [{{id: a, set: {step}}}]}}, other: {{steps: [{{id: a, set: 1}}]}}}}"
        )
        return workflow_harness.load().definitions["flow"].version

    assert version("1") == version("1")
    assert len(version("1")) == 12
    assert version("1") != version("2")
    assert version("1", "version: '7',") == "7"
