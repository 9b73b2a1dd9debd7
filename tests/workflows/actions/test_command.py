"""Steps that run commands: what reaches them, what comes back, and that nothing of them is left behind."""

import asyncio
import resource
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from raincheck.core.payload import Json
from tests.support.workflows.harness import Workshop

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


def flow(step: str, more: str = "") -> str:
    """A workflow of one step, with an input `x` that can be anything."""
    return f"{more}\nworkflows:\n  flow:\n    input: {{x: {{default: null}}}}\n    steps:\n      - {{id: a, {step}}}\n"


async def stdout_of(workshop: Workshop, step: str, more: str = "", x: Json = None) -> Any:
    return cast("Any", await workshop.run(flow(step, more), x=x))["stdout"]


async def test_a_value_is_one_argument_whatever_is_in_it(workshop: Workshop) -> None:
    hostile = "a b; echo c $(echo d) `e` 'f' \"g\" \n* ../ | cat"
    assert await stdout_of(workshop, "run: [printf, '%s', 'x{{ input.x }}']", x=hostile) == f"x{hostile}"


async def test_a_list_becomes_several_arguments(workshop: Workshop) -> None:
    said = await stdout_of(workshop, "run: [printf, '<%s>', '{{ input.x }}', 5, true]", x=["a b", 1.5])
    assert said == "<a b><1.5><5><true>"


@pytest.mark.parametrize("value", ["--exec=rm", "-rf", ["ok", "-x"], -5])
async def test_a_value_that_the_command_would_take_for_an_option_is_refused(workshop: Workshop, value: Json) -> None:
    message = await workshop.failure(flow("run: [echo, '{{ input.x }}']"), x=value)
    assert "failed (refused)" in message
    assert "takes for an option" in message


async def test_after_a_constant_double_dash_a_value_may_begin_with_one(workshop: Workshop) -> None:
    assert await stdout_of(workshop, "run: [printf, --, '%s', '{{ input.x }}']", x="-rf") == "-rf"


async def test_after_constant_text_a_value_may_begin_with_one(workshop: Workshop) -> None:
    assert await stdout_of(workshop, "run: [printf, '%s', 'x={{ input.x }}']", x="-rf") == "x=-rf"


async def test_a_double_dash_from_a_caller_opens_nothing(workshop: Workshop) -> None:
    message = await workshop.failure(flow("run: [echo, '{{ input.x }}']"), x=["--", "-rf"])
    assert "takes for an option" in message


@pytest.mark.parametrize("value", ["a\0b", None, {"a": 1}])
async def test_what_is_no_argument_is_refused(workshop: Workshop, value: Json) -> None:
    message = await workshop.failure(flow("run: [printf, '%s', '{{ input.x }}']"), x=value)
    assert "failed (refused)" in message or "failed (expression)" in message


async def test_a_script_gets_values_as_variables(workshop: Workshop) -> None:
    step = """run: {shell: 'echo "<$VALUE>"', env: {VALUE: '{{ input.x }}'}}"""
    assert await stdout_of(workshop, step, x='"; echo pwned; "') == '<"; echo pwned; ">'


async def test_a_command_inherits_what_the_file_allows_and_no_more(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPEN_SESAME", "yes")
    monkeypatch.setenv("OTHER_SECRET", "no")
    said = await stdout_of(workshop, "run: {argv: [env], output: lines}", "allow: {env: [OPEN_SESAME]}")
    names = {line.partition("=")[0] for line in said}
    assert "OPEN_SESAME" in names
    assert names <= {"OPEN_SESAME", "PATH", "HOME", "LANG"}


@pytest.mark.parametrize("cwd", ["..", "/", "out/../../x", "link", "out/link/deeper"])
async def test_no_value_takes_a_command_out_of_its_folder(workshop: Workshop, cwd: str) -> None:
    (workshop.folder / "out").mkdir()
    (workshop.folder / "out" / "link").symlink_to("/tmp")  # noqa: S108 - it must not be reached
    (workshop.folder / "link").symlink_to("/")
    message = await workshop.failure(flow("run: {argv: [pwd], cwd: '{{ input.x }}'}"), x=cwd)
    assert "failed (refused)" in message


async def test_a_command_runs_in_a_folder_that_is_allowed(workshop: Workshop, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    more = f"allow: {{folders: ['{other}']}}"
    assert await stdout_of(workshop, "run: {argv: [pwd], cwd: '{{ input.x }}'}", more, x=str(other)) == str(other)


async def test_a_folder_that_is_not_there_is_not_found(workshop: Workshop) -> None:
    assert "failed (not-found)" in await workshop.failure(flow("run: {argv: [pwd], cwd: '{{ input.x }}'}"), x="gone")


@pytest.mark.parametrize(
    ("output", "shell", "said"),
    [
        ("text", "printf 'a\\nb\\n'", "a\nb"),
        ("lines", "printf 'a\\nb\\n'", ["a", "b"]),
        ("json", "echo '{\"a\": [1]}'", {"a": [1]}),
        ("bytes", "printf '\\377'", "/w=="),
    ],
)
async def test_what_a_command_writes_is_read_as_the_file_says(
    workshop: Workshop, output: str, shell: str, said: Json
) -> None:
    (workshop.folder / "script").write_text(shell)
    assert await stdout_of(workshop, f"run: {{argv: [sh, script], output: {output}}}") == said


@pytest.mark.parametrize("output", ["text", "json", "lines"])
async def test_what_is_not_text_is_an_error_unless_bytes_are_wanted(workshop: Workshop, output: str) -> None:
    (workshop.folder / "data").write_bytes(b"\xff\xfe\0")
    message = await workshop.failure(flow(f"run: {{argv: [cat, data], output: {output}}}"))
    assert "is not UTF-8 text: say `output: bytes`" in message


async def test_what_is_not_json_is_an_error(workshop: Workshop) -> None:
    assert "is not JSON" in await workshop.failure(flow("run: {argv: [echo, '{'], output: json}"))


async def test_text_and_json_reach_the_standard_input(workshop: Workshop) -> None:
    assert await stdout_of(workshop, "run: {argv: [cat], stdin: 'got {{ input.x }}'}", x="it") == "got it"
    assert await stdout_of(workshop, "run: {argv: [cat], stdin: '{{ input.x }}', output: json}", x=[1]) == [1]


async def test_a_command_that_does_not_read_its_input_is_no_trouble(workshop: Workshop) -> None:
    big = "x" * 500_000
    assert await stdout_of(workshop, "run: {argv: [echo, done], stdin: '{{ input.x }}'}", x=big) == "done"


async def test_exit_codes_can_be_declared_fine(workshop: Workshop) -> None:
    said = await workshop.run(flow("run: {argv: [sh, -c, 'exit 3'], ok: [0, 3]}"))
    assert said == {"exit_code": 3, "stdout": "", "stderr": ""}


async def test_the_end_of_what_a_command_complains_of_is_told(workshop: Workshop) -> None:
    message = await workshop.failure(flow("run: {shell: 'seq 1 100000 >&2; echo the end >&2; exit 4'}"))
    assert "exit code 4: …" in message
    assert message.endswith("the end")


async def test_a_signal_is_told_by_its_name(workshop: Workshop) -> None:
    assert "ended by SIGSEGV" in await workshop.failure(flow("run: {shell: 'kill -SEGV $$'}"))


async def test_a_gigabyte_is_not_held(workshop: Workshop) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = await workshop.failure(
        flow("run: {shell: 'head -c 1000000000 /dev/zero; head -c 50000000 /dev/zero >&2'}")
    )
    assert "failed (too-large)" in message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000, "in KiB"


async def test_as_much_as_is_allowed_is_no_error(workshop: Workshop) -> None:
    assert (
        len(await stdout_of(workshop, "run: {shell: 'head -c 1000 /dev/zero | tr \"\\\\0\" x', max_output: 1000}"))
        == 1000
    )
    assert "too-large" in await workshop.failure(flow("run: {shell: 'head -c 1001 /dev/zero', max_output: 1000}"))


async def test_a_result_that_no_checkpoint_holds_is_too_large(workshop: Workshop) -> None:
    step = "run: {shell: 'head -c 900000 /dev/zero', max_output: 5MB, output: bytes}"
    assert "its result has 1,2" in await workshop.failure(flow(step))


async def is_alive(pid: int) -> bool:
    asked = await asyncio.create_subprocess_exec("ps", "-o", "stat=", "-p", str(pid), stdout=asyncio.subprocess.PIPE)
    state, _ = await asked.communicate()
    return bool(state.strip()) and not state.strip().startswith(b"Z")


async def wait_until_gone(file: Path) -> None:
    """Until the process whose number is in the file is gone."""
    pid = int(await asyncio.to_thread(file.read_text))
    async with asyncio.timeout(10):
        while await is_alive(pid):  # noqa: ASYNC110 - another process, so there is nothing to wait on but time
            await asyncio.sleep(0.02)


STUBBORN = (
    "trap : TERM; (trap : TERM; while :; do sleep 0.05; done) & echo $! > grandchild; while :; do sleep 0.05; done"
)


async def test_a_command_that_takes_too_long_is_killed_with_its_grandchildren(workshop: Workshop) -> None:
    (workshop.folder / "script").write_text(STUBBORN)
    message = await workshop.failure(flow("run: [sh, script], timeout: 0.5"))
    assert message == "step 'a' failed (timeout) at `run sh`: it took longer than 0.5 s"
    await wait_until_gone(workshop.folder / "grandchild")


async def test_what_a_command_leaves_running_is_ended(workshop: Workshop) -> None:
    (workshop.folder / "script").write_text("sleep 100 & echo $! > left; echo done")
    assert await stdout_of(workshop, "run: [sh, script]") == "done"
    await wait_until_gone(workshop.folder / "left")


RUN = """
import asyncio, os, sys
from pathlib import Path
from raincheck.workflows.actions.command import run_command
print(asyncio.run(run_command(["sh", "script"], cwd=Path(sys.argv[1]), env=os.environ, stdin=None, max_output=10)))
"""


async def test_a_command_ends_with_the_worker_that_was_killed(workshop: Workshop) -> None:
    (workshop.folder / "script").write_text(f"echo $$ > child; {STUBBORN}")
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", RUN, workshop.folder)
    grandchild = workshop.folder / "grandchild"
    while not await asyncio.to_thread(lambda: grandchild.exists() and grandchild.read_text()):  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.02)
    worker.kill()
    await worker.wait()
    await wait_until_gone(workshop.folder / "child")
    await wait_until_gone(grandchild)


@pytest.mark.parametrize("signal", ["TERM", "INT", "HUP", "USR1"])
async def test_a_command_may_signal_its_own_group(workshop: Workshop, signal: str) -> None:
    (workshop.folder / "script").write_text(f"trap '' {signal}; kill -{signal} 0; echo hi; exit 3")
    said = await workshop.run(flow("run: {argv: [sh, script], ok: [3]}"))
    assert said == {"exit_code": 3, "stdout": "hi", "stderr": ""}


@pytest.mark.parametrize("how", ["timeout 100", 'sh -c \'set -m; "$0" "$@" & wait\''])
async def test_what_makes_a_group_of_its_own_is_ended_too(workshop: Workshop, how: str) -> None:
    (workshop.folder / "script").write_text("echo $$ > child; exec sleep 100")
    (workshop.folder / "outer").write_text(f"exec {how} sh script")
    assert "(timeout)" in await workshop.failure(flow("run: [sh, outer], timeout: 0.7"))
    await wait_until_gone(workshop.folder / "child")


async def test_a_worker_that_ignores_the_end_of_children_hears_of_commands(workshop: Workshop) -> None:
    (workshop.folder / "script").write_text("exit 3")
    code = f"import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{RUN}"
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", code, workshop.folder, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await worker.communicate()
    assert b"exit_code=3" in said


async def test_a_command_that_kills_its_leader_is_ended_too(workshop: Workshop) -> None:
    (workshop.folder / "script").write_text("echo $$ > child; kill -9 $PPID; exec sleep 100")
    assert "ended by SIGKILL" in await workshop.failure(flow("run: [sh, script]"))
    await wait_until_gone(workshop.folder / "child")


async def test_a_program_that_is_none_is_refused(workshop: Workshop) -> None:
    (workshop.folder / "tool").write_bytes(b"\0\1\2")
    (workshop.folder / "tool").chmod(0o755)
    assert "'./tool' can't be run: Exec format error" in await workshop.failure(flow("run: [./tool]"))


async def test_a_command_that_went_away_since_it_was_checked_is_not_found(workshop: Workshop) -> None:
    tool = workshop.folder / "tool"
    tool.write_text("#!/bin/sh\necho hi\n")
    tool.chmod(0o755)
    async with workshop.working(flow("run: ['./tool']")):
        assert cast("Any", await workshop.result())["stdout"] == "hi"
        tool.chmod(0o644)
        assert "failed (refused)" in await workshop.error()
        tool.unlink()
        assert "failed (not-found)" in await workshop.error()


async def test_callers_who_choose_the_folder_do_not_choose_the_program(workshop: Workshop) -> None:
    (workshop.folder / "up").mkdir()
    for folder, said in ((workshop.folder, "ours"), (workshop.folder / "up", "theirs")):
        (folder / "build.sh").write_text(f"#!/bin/sh\necho {said} in $(basename $(pwd))\n")
        (folder / "build.sh").chmod(0o755)
    assert await stdout_of(workshop, "run: {argv: [./build.sh], cwd: '{{ input.x }}'}", x="up") == "ours in up"


async def test_a_value_after_a_constant_script_is_an_argument_of_it(workshop: Workshop) -> None:
    hostile = "x; echo pwned"
    assert await stdout_of(workshop, """run: [sh, -c, 'echo "<$0>"', '{{ input.x }}']""", x=hostile) == f"<{hostile}>"
