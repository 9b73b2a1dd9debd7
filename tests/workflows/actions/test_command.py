"""Steps that run commands: their arguments and environment, their output, and that no process is left behind."""

import asyncio
import resource
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from raincheck.core.values import Json
from tests.support.workflows.harness import WorkflowHarness

pytestmark = pytest.mark.anyio


def flow(step: str, more: str = "") -> str:
    """A workflow of one step, with an input `x` that can be anything."""
    return f"{more}\nworkflows:\n  flow:\n    input: {{x: {{default: null}}}}\n    steps:\n      - {{id: a, {step}}}\n"


async def stdout_of(workflow_harness: WorkflowHarness, step: str, more: str = "", x: Json = None) -> Any:
    return cast("Any", await workflow_harness.run(flow(step, more), x=x))["stdout"]


async def test_a_value_is_one_argument_whatever_is_in_it(workflow_harness: WorkflowHarness) -> None:
    hostile = "a b; echo c $(echo d) `e` 'f' \"g\" \n* ../ | cat"
    assert await stdout_of(workflow_harness, "run: [printf, '%s', '{{ input.x }}']", x=hostile) == hostile


async def test_a_list_becomes_several_arguments(workflow_harness: WorkflowHarness) -> None:
    output = await stdout_of(workflow_harness, "run: [printf, '<%s>', '{{ input.x }}', 5, true]", x=["a b", 1.5])
    assert output == "<a b><1.5><5><true>"


@pytest.mark.parametrize("value", ["--exec=rm", "-rf", ["ok", "-x"], -5])
async def test_a_value_that_the_command_would_read_as_an_option_is_refused(
    workflow_harness: WorkflowHarness, value: Json
) -> None:
    message = await workflow_harness.failure(flow("run: [echo, '{{ input.x }}']"), x=value)
    assert "failed (refused)" in message
    assert "would read it as an option" in message
    assert "rm" not in message


async def test_a_number_that_the_command_would_read_as_an_option_is_refused(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure(flow("run: [head, -n, '{{ input.x | int }}']"), x=-5)
    assert "would read it as an option" in message
    assert await stdout_of(workflow_harness, "run: [echo, 'n={{ input.x | int }}']", x=-5) == "n=-5"


async def test_an_option_may_take_the_double_dash_as_its_argument(workflow_harness: WorkflowHarness) -> None:
    """`sort -o -- --compress-program=…` writes to a file of the name `--`, and starts that program."""
    step = "run: [sort, -o, --, '{{ input.x }}']"
    assert "would read it as an option" in await workflow_harness.failure(flow(step), x="--compress-program=sh")


async def test_a_program_that_runs_others_may_take_the_double_dash_for_itself(
    workflow_harness: WorkflowHarness,
) -> None:
    message = await workflow_harness.failure(flow("run: [env, --, echo, '{{ input.x | int }}']"), x=-5)
    assert "would read it as an option" in message


async def test_an_option_in_an_expression_takes_no_value(workflow_harness: WorkflowHarness) -> None:
    option = "{{ '-c' if input.x else '-v' }}"
    message = await workflow_harness.failure(flow(f"""run: [echo, "{option}", '{{{{ input.x }}}}']"""), x="a")
    assert "argument 2 follows an option" in message
    # An empty list leaves the option before it without the argument that the file gives it.
    message = await workflow_harness.failure(flow("run: [echo, -o, '{{ [] }}', '{{ input.x }}']"), x="a")
    assert "argument 3 follows an option" in message


async def test_a_constant_that_a_value_chooses_may_be_an_option(workflow_harness: WorkflowHarness) -> None:
    step = """run: [printf, '%s', "{{ '--all' if input.x else '--new' }}"]"""
    assert await stdout_of(workflow_harness, step, x=True) == "--all"


async def test_an_empty_list_does_not_make_the_next_item_the_program(workflow_harness: WorkflowHarness) -> None:
    step = "run: {argv: ['{{ [] }}', '{{ input.x }}'], unsafe: true}"
    assert "the program is an empty list" in await workflow_harness.failure(flow(step), x="id")


async def test_an_unsafe_command_takes_any_value(workflow_harness: WorkflowHarness) -> None:
    step = "run: {argv: [sh, -c, 'echo {{ input.x }}'], unsafe: true}"
    assert await stdout_of(workflow_harness, step, x="a; echo b") == "a\nb"


async def test_after_a_constant_double_dash_a_value_may_start_with_a_dash(workflow_harness: WorkflowHarness) -> None:
    assert await stdout_of(workflow_harness, "run: [printf, --, '%s', '{{ input.x }}']", x="-rf") == "-rf"


async def test_after_constant_text_a_value_may_start_with_a_dash(workflow_harness: WorkflowHarness) -> None:
    typed = "workflows: {flow: {input: {x: {enum: [-rf]}}, steps: [{id: a, run: [printf, '%s', 'x={{ input.x }}']}]}}"
    assert cast("Any", await workflow_harness.run(typed, x="-rf"))["stdout"] == "x=-rf"


async def test_a_double_dash_in_a_value_does_not_allow_options(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure(flow("run: [echo, '{{ input.x }}']"), x=["--", "-rf"])
    assert "would read it as an option" in message


@pytest.mark.parametrize("value", ["a\0b", None, {"a": 1}])
async def test_a_value_that_can_not_be_an_argument_is_refused(workflow_harness: WorkflowHarness, value: Json) -> None:
    message = await workflow_harness.failure(flow("run: [printf, '%s', '{{ input.x }}']"), x=value)
    assert "failed (refused)" in message or "failed (expression)" in message


async def test_a_script_gets_values_as_variables(workflow_harness: WorkflowHarness) -> None:
    step = """run: {shell: 'echo "<$VALUE>"', env: {VALUE: '{{ input.x }}'}}"""
    assert await stdout_of(workflow_harness, step, x='"; echo pwned; "') == '<"; echo pwned; ">'


async def test_a_command_inherits_only_the_variables_that_the_file_allows(
    workflow_harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPEN_SESAME", "yes")
    monkeypatch.setenv("OTHER_SECRET", "no")
    output = await stdout_of(workflow_harness, "run: {argv: [env], output: lines}", "allow: {env: [OPEN_SESAME]}")
    names = {line.partition("=")[0] for line in output}
    assert "OPEN_SESAME" in names
    assert names <= {"OPEN_SESAME", "PATH", "HOME", "LANG"}


@pytest.mark.parametrize("cwd", ["..", "/", "out/../../x", "link", "out/link/deeper"])
async def test_no_value_moves_a_command_out_of_its_folder(workflow_harness: WorkflowHarness, cwd: str) -> None:
    (workflow_harness.folder / "out").mkdir()
    (workflow_harness.folder / "out" / "link").symlink_to("/tmp")  # noqa: S108 - it must not be reached
    (workflow_harness.folder / "link").symlink_to("/")
    message = await workflow_harness.failure(flow("run: {argv: [pwd], cwd: '{{ input.x }}'}"), x=cwd)
    assert "failed (refused)" in message


async def test_a_command_runs_in_an_allowed_folder(workflow_harness: WorkflowHarness, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    more = f"allow: {{folders: ['{other}']}}"
    assert await stdout_of(workflow_harness, "run: {argv: [pwd], cwd: '{{ input.x }}'}", more, x=str(other)) == str(
        other
    )


@pytest.mark.parametrize("cwd", ["a\0b", "a" * 5_000])
async def test_a_folder_that_is_not_a_path_is_refused(workflow_harness: WorkflowHarness, cwd: str) -> None:
    message = await workflow_harness.failure(flow("run: {argv: [pwd], cwd: '{{ input.x }}'}"), x=cwd)
    assert "`cwd` is not a path" in message


async def test_a_missing_folder_is_a_not_found_error(workflow_harness: WorkflowHarness) -> None:
    assert "failed (not-found)" in await workflow_harness.failure(
        flow("run: {argv: [pwd], cwd: '{{ input.x }}'}"), x="gone"
    )


@pytest.mark.parametrize("cwd", ["1" * 400, "a\0b", "circle"])
async def test_what_can_t_be_a_folder_is_an_error_of_its_step(workflow_harness: WorkflowHarness, cwd: str) -> None:
    (workflow_harness.folder / "circle").symlink_to("circle")
    message = await workflow_harness.failure(flow("run: {argv: [pwd], cwd: '{{ input.x }}'}"), x=cwd)
    # Python 3.13 and newer take a circle of links for a folder that does not exist.
    assert "failed (refused)" in message or "failed (not-found)" in message


@pytest.mark.parametrize(
    ("output", "shell", "said"),
    [
        ("text", "printf 'a\\nb\\n'", "a\nb"),
        ("lines", "printf 'a\\nb\\n'", ["a", "b"]),
        ("json", "echo '{\"a\": [1]}'", {"a": [1]}),
        ("bytes", "printf '\\377'", "/w=="),
    ],
)
async def test_output_is_decoded_as_the_file_declares(
    workflow_harness: WorkflowHarness, output: str, shell: str, said: Json
) -> None:
    (workflow_harness.folder / "script").write_text(shell)
    assert await stdout_of(workflow_harness, f"run: {{argv: [sh, script], output: {output}}}") == said


@pytest.mark.parametrize("output", ["text", "json", "lines"])
async def test_output_that_is_not_text_is_an_error_unless_the_step_reads_bytes(
    workflow_harness: WorkflowHarness, output: str
) -> None:
    (workflow_harness.folder / "data").write_bytes(b"\xff\xfe\0")
    message = await workflow_harness.failure(flow(f"run: {{argv: [cat, data], output: {output}}}"))
    assert "is not UTF-8 text: set `output: bytes`" in message


async def test_output_that_is_not_json_is_an_error(workflow_harness: WorkflowHarness) -> None:
    assert "is not JSON" in await workflow_harness.failure(flow("run: {argv: [echo, '{'], output: json}"))


async def test_text_and_json_reach_the_standard_input(workflow_harness: WorkflowHarness) -> None:
    assert await stdout_of(workflow_harness, "run: {argv: [cat], stdin: 'got {{ input.x }}'}", x="it") == "got it"
    assert await stdout_of(workflow_harness, "run: {argv: [cat], stdin: '{{ input.x }}', output: json}", x=[1]) == [1]


async def test_a_command_may_ignore_its_standard_input(workflow_harness: WorkflowHarness) -> None:
    big = "x" * 500_000
    assert await stdout_of(workflow_harness, "run: {argv: [echo, done], stdin: '{{ input.x }}'}", x=big) == "done"


async def test_exit_codes_can_be_declared_successful(workflow_harness: WorkflowHarness) -> None:
    said = await workflow_harness.run(flow("run: {argv: [sh, -c, 'exit 3'], ok: [0, 3]}"))
    assert said == {"exit_code": 3, "stdout": "", "stderr": ""}


async def test_an_error_contains_the_end_of_standard_error(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure(flow("run: {shell: 'seq 1 100000 >&2; echo the end >&2; exit 4'}"))
    assert "exit code 4: …" in message
    assert message.endswith("the end")


async def test_an_error_names_the_signal_that_ended_the_command(workflow_harness: WorkflowHarness) -> None:
    assert "ended by SIGSEGV" in await workflow_harness.failure(flow("run: {shell: 'kill -SEGV $$'}"))


async def test_a_gigabyte_of_output_is_not_held_in_memory(workflow_harness: WorkflowHarness) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = await workflow_harness.failure(
        flow("run: {shell: 'head -c 1000000000 /dev/zero; head -c 50000000 /dev/zero >&2'}")
    )
    assert "failed (too-large)" in message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000, "in KiB"


async def test_output_up_to_the_limit_is_accepted(workflow_harness: WorkflowHarness) -> None:
    assert (
        len(
            await stdout_of(
                workflow_harness, "run: {shell: 'head -c 1000 /dev/zero | tr \"\\\\0\" x', max_output: 1000}"
            )
        )
        == 1000
    )
    assert "too-large" in await workflow_harness.failure(
        flow("run: {shell: 'head -c 1001 /dev/zero', max_output: 1000}")
    )


async def test_a_result_larger_than_a_checkpoint_is_too_large(workflow_harness: WorkflowHarness) -> None:
    step = "run: {shell: 'head -c 900000 /dev/zero', max_output: 5MB, output: bytes}"
    assert "its result has 1,2" in await workflow_harness.failure(flow(step))


async def is_alive(pid: int) -> bool:
    asked = await asyncio.create_subprocess_exec("ps", "-o", "stat=", "-p", str(pid), stdout=asyncio.subprocess.PIPE)
    state, _ = await asked.communicate()
    return bool(state.strip()) and not state.strip().startswith(b"Z")


async def wait_until_gone(file: Path) -> None:
    """Wait until the process whose id is in the file has ended."""
    pid = int(await asyncio.to_thread(file.read_text))
    async with asyncio.timeout(10):
        while await is_alive(pid):  # noqa: ASYNC110 - another process, so this polls
            await asyncio.sleep(0.02)


STUBBORN = (
    "trap : TERM; (trap : TERM; while :; do sleep 0.05; done) & echo $! > grandchild; while :; do sleep 0.05; done"
)


async def test_a_command_that_takes_too_long_is_killed_with_its_grandchildren(
    workflow_harness: WorkflowHarness,
) -> None:
    (workflow_harness.folder / "script").write_text(STUBBORN)
    message = await workflow_harness.failure(flow("run: [sh, script], timeout: 0.5"))
    assert message == "step 'a' failed (timeout) at `run sh`: it took longer than 0.5 s"
    await wait_until_gone(workflow_harness.folder / "grandchild")


async def test_processes_that_a_command_leaves_running_are_ended(workflow_harness: WorkflowHarness) -> None:
    (workflow_harness.folder / "script").write_text("sleep 100 & echo $! > left; echo done")
    assert await stdout_of(workflow_harness, "run: [sh, script]") == "done"
    await wait_until_gone(workflow_harness.folder / "left")


RUN = """
import asyncio, os, sys
from pathlib import Path
from raincheck.workflows.actions.command import run_command
print(asyncio.run(run_command(["sh", "script"], cwd=Path(sys.argv[1]), env=os.environ, stdin=None, max_output=10)))
"""


async def test_a_command_ends_with_the_worker_that_was_killed(workflow_harness: WorkflowHarness) -> None:
    (workflow_harness.folder / "script").write_text(f"echo $$ > child; {STUBBORN}")
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", RUN, workflow_harness.folder)
    grandchild = workflow_harness.folder / "grandchild"
    while not await asyncio.to_thread(lambda: grandchild.exists() and grandchild.read_text()):  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.02)
    worker.kill()
    await worker.wait()
    await wait_until_gone(workflow_harness.folder / "child")
    await wait_until_gone(grandchild)


REPORT_TO_NOBODY = """
import os, socket
from _thread import allocate_lock
from raincheck import process_supervisor
ours, parents = socket.socketpair()
parents.close()
running = allocate_lock()
running.acquire()
process_supervisor._report_exit(os.posix_spawnp("true", ["true"], os.environ), ours.fileno(), running)
print("goes on to end the session", running.locked())
"""


async def test_the_session_of_a_killed_worker_is_ended_even_if_its_command_ends_first() -> None:
    supervisor = await asyncio.create_subprocess_exec(
        sys.executable, "-c", REPORT_TO_NOBODY, stdout=asyncio.subprocess.PIPE
    )
    assert await supervisor.communicate() == (b"goes on to end the session False\n", None)


@pytest.mark.parametrize("signal", ["TERM", "INT", "HUP", "USR1"])
async def test_a_command_may_signal_its_own_group(workflow_harness: WorkflowHarness, signal: str) -> None:
    (workflow_harness.folder / "script").write_text(f"trap '' {signal}; kill -{signal} 0; echo hi; exit 3")
    said = await workflow_harness.run(flow("run: {argv: [sh, script], ok: [3]}"))
    assert said == {"exit_code": 3, "stdout": "hi", "stderr": ""}


@pytest.mark.parametrize("how", ["timeout 100", 'sh -c \'set -m; "$0" "$@" & wait\''])
async def test_processes_in_their_own_group_are_ended_too(workflow_harness: WorkflowHarness, how: str) -> None:
    (workflow_harness.folder / "script").write_text("echo $$ > child; exec sleep 100")
    (workflow_harness.folder / "outer").write_text(f"exec {how} sh script")
    assert "(timeout)" in await workflow_harness.failure(flow("run: [sh, outer], timeout: 0.7"))
    await wait_until_gone(workflow_harness.folder / "child")


async def test_a_worker_that_ignores_sigchld_still_learns_how_commands_end(workflow_harness: WorkflowHarness) -> None:
    (workflow_harness.folder / "script").write_text("exit 3")
    code = f"import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{RUN}"
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", code, workflow_harness.folder, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await worker.communicate()
    assert b"exit_code=3" in said


async def test_a_command_that_kills_its_leader_is_ended_too(workflow_harness: WorkflowHarness) -> None:
    (workflow_harness.folder / "script").write_text("echo $$ > child; kill -9 $PPID; exec sleep 100")
    assert "ended by SIGKILL" in await workflow_harness.failure(flow("run: [sh, script]"))
    await wait_until_gone(workflow_harness.folder / "child")


async def test_a_file_that_is_not_a_program_is_refused(workflow_harness: WorkflowHarness) -> None:
    (workflow_harness.folder / "tool").write_bytes(b"\0\1\2")
    (workflow_harness.folder / "tool").chmod(0o755)
    assert "'./tool' can't be run: Exec format error" in await workflow_harness.failure(flow("run: [./tool]"))


async def test_a_command_removed_after_the_check_is_not_found(workflow_harness: WorkflowHarness) -> None:
    tool = workflow_harness.folder / "tool"
    tool.write_text("#!/bin/sh\necho hi\n")
    tool.chmod(0o755)
    async with workflow_harness.running(flow("run: ['./tool']")):
        assert cast("Any", await workflow_harness.result())["stdout"] == "hi"
        tool.chmod(0o644)
        assert "failed (refused)" in await workflow_harness.error()
        tool.unlink()
        assert "failed (not-found)" in await workflow_harness.error()


async def test_callers_who_choose_the_folder_do_not_choose_the_program(workflow_harness: WorkflowHarness) -> None:
    (workflow_harness.folder / "up").mkdir()
    for folder, said in ((workflow_harness.folder, "ours"), (workflow_harness.folder / "up", "theirs")):
        (folder / "build.sh").write_text(f"#!/bin/sh\necho {said} in $(basename $(pwd))\n")
        (folder / "build.sh").chmod(0o755)
    assert await stdout_of(workflow_harness, "run: {argv: [./build.sh], cwd: '{{ input.x }}'}", x="up") == "ours in up"


async def test_a_value_after_a_script_file_is_its_argument(workflow_harness: WorkflowHarness) -> None:
    (workflow_harness.folder / "tool.sh").write_text('echo "<$1>"; cat')
    hostile = "x; echo pwned"
    step = "run: {argv: [sh, tool.sh, '{{ input.x }}'], stdin: '{{ input.x }}'}"
    assert await stdout_of(workflow_harness, step, x=hostile) == f"<{hostile}>\n{hostile}"


VALUE = 'hush "my"\ndear\\friend'
ALLOWING = "allow: {env: [SECRET]}\nservers: {other: {command: [cat, gone]}}"


@pytest.mark.parametrize(
    "step",
    [
        """run: {shell: 'printf "%s\n" "$SECRET" >&2; exit 3'}""",
        """run: {shell: 'printf "got %s" "$SECRET" | tail -n 1 >&2; exit 3'}""",
        """call: {server: other, tool: "none", arguments: {a: "{{ env.SECRET }}"}}""",
        """run: {shell: 'printf "%s" "$SECRET"', output: json}""",
        """run: {argv: [pwd], cwd: "{{ env.SECRET }}"}""",
        """run: {argv: [pwd], cwd: "../{{ env.SECRET }}"}""",
        """set: "{{ input.x[env.SECRET] }}" """,
        """set: "{{ {}[env.SECRET | tojson] }}" """,
        """http: {url: "ftp:{{ env.SECRET }}"}""",
        """python: "tests.support.workflows.step_functions:refuse", with: {why: "no {{ env.SECRET }}"}""",
    ],
)
async def test_an_error_message_does_not_contain_secrets(
    workflow_harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setenv("SECRET", VALUE)
    message = await workflow_harness.failure(flow(step, ALLOWING), x={})
    assert not any(part in message for part in ("hush", "dear", "friend")), message


@pytest.mark.parametrize("shift", range(0, 64, 7))
async def test_a_secret_is_not_cut_in_half(
    workflow_harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    """The error output is cut at 32,000 bytes and at 500 characters, and a message at 2,000 characters."""
    monkeypatch.setenv("SECRET", "".join(f"hush{number}" for number in range(200)))
    padding = "-" * shift
    script = f'for i in $(seq 100); do printf "$SECRET"; done >&2; printf %s "{padding}" >&2; exit 3'
    assert "hush" not in await workflow_harness.failure(flow(f"run: {{shell: '{script}'}}", ALLOWING))
    shell = f'printf "%s%s" "x{padding}" "$SECRET"'
    assert "hush" not in await workflow_harness.failure(flow(f"run: {{shell: '{shell}', output: json}}", ALLOWING))
    long = "x" * (1_990 - shift)
    step = f"""python: "tests.support.workflows.step_functions:refuse", with: {{why: "{long}{{{{ env.SECRET }}}}"}}"""
    assert "hush" not in await workflow_harness.failure(flow(step, ALLOWING))
