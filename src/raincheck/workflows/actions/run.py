"""Actions that run a command."""

import asyncio
import base64
import errno
import json
import shlex
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from raincheck.core.values import Json, encode
from raincheck.workflows.actions.base import Action, ActionCall, ActionFailed
from raincheck.workflows.actions.command import STDERR_LIMIT, CommandResult, run_command
from raincheck.workflows.actions.command_values import is_option, runs_code, starts_with_value
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.sandbox import text_of
from raincheck.workflows.expressions.template import (
    Scope,
    Template,
    TextTemplate,
    has_expressions,
    rendered_text,
    rendered_texts,
)
from raincheck.workflows.parsing.models import ActionModel, RunModel, Scalar
from raincheck.workflows.permissions import Permissions, explain_missing_command, is_command, resolve_program

MAX_STDERR_IN_ERROR = 500
"""Characters of a command's standard error that the error message contains."""


class RunAction(Action):
    """Run a command. The result is `{exit_code, stdout, stderr}`."""

    template_keys = ("argv", "env", "cwd", "stdin")

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        self._options = run = cast("RunModel", model.run)
        argv: list[Scalar] = ["/bin/sh", "-c"] if run.argv is None else run.argv
        self._argv = [
            TextTemplate.parse(item) if isinstance(item, str) else TextTemplate((text_of(item),)) for item in argv
        ]
        self._rest = Template.parse({"env": run.env, "cwd": run.cwd, "stdin": run.stdin})
        self.label = f"run {shlex.quote(str(argv[0]))}" if run.shell is None else "run a shell script"

    @staticmethod
    def check(model: ActionModel, permissions: Permissions) -> Iterator[Problem]:
        run = cast("RunModel", model.run)
        if run.shell is not None and has_expressions(run.shell):
            yield (
                ("run", "shell"),
                'values must not become part of a script: pass them through `env`, and write "$NAME"',
            )
        if run.argv is not None:
            program = text_of(run.argv[0])
            if not has_expressions(program) and not is_command(program, permissions.folder):
                yield ("run",), explain_missing_command(program, permissions.folder)
        if run.cwd is not None and not has_expressions(run.cwd):
            folder = (permissions.folder / run.cwd).resolve()
            if not permissions.allows_folder(folder):
                yield ("run", "cwd"), f"{run.cwd!r} is not in the file's folder: add it to `allow.folders`"

    async def perform(self, call: ActionCall) -> Json:
        scope = self.scope_with_env(call)
        rest = cast("Mapping[str, Json]", self._rest.render(scope))
        argv = [*self._arguments(scope)]
        if self._options.shell is not None:
            # The script is constant. Values are passed as variables, and can't become part of it.
            argv.append(self._options.shell)
        cwd = await asyncio.to_thread(self._folder, rest["cwd"])
        variables = rendered_texts(rest["env"], "a variable of the command")
        env = {**self._permissions.command_environment(), **variables}
        return self._result(await self._run(argv, cwd, env, rest["stdin"]))

    def _arguments(self, scope: Scope) -> Iterator[str]:
        # A program that runs others may take the `--` for itself.
        takes_dashes = runs_code(self._options)
        is_safe = self._options.unsafe
        before = ""
        for index, text in enumerate(self._argv):
            value = text.render(scope)
            items = [
                rendered_text(item, f"argument {index} of the command")
                for item in (value if isinstance(value, list) else [value])
            ]
            if index == 0 and not items:
                # The next item, which may be a value, would be the program.
                raise ActionFailed("refused", "the program is an empty list: give it a name")
            for item in items:
                if starts_with_value(text) and not is_safe:
                    # The validation of the file has checked options that are constant.
                    is_hidden = is_option(before) and not isinstance(self._argv[index - 1].parts[-1], str)
                    _check_is_no_option(item, index, follows_option=is_hidden)
                yield item
                # An option may take the `--` as its argument.
                is_safe |= text.parts == ("--",) and not takes_dashes and not is_option(before)
                before = item

    def _folder(self, cwd: Json) -> Path:
        try:
            folder = (self._permissions.folder / ("." if cwd is None else str(cwd))).resolve()
            if not self._permissions.allows_folder(folder):
                raise ActionFailed("refused", f"{cwd!r} is not in the file's folder: add it to `allow.folders`")
            if not folder.is_dir():
                raise ActionFailed("not-found", f"there is no folder {cwd!r}")
        except (OSError, ValueError, RuntimeError) as error:
            message = "`cwd` is not a path: it is too long, contains a NUL, or is a circle of links"
            raise ActionFailed("refused", message) from error
        return folder

    async def _run(self, argv: list[str], cwd: Path, env: Mapping[str, str], stdin: Json) -> CommandResult:
        text = stdin if isinstance(stdin, str) else encode(stdin).decode()
        # Not resolved from `cwd`, which callers may choose.
        program = resolve_program(argv[0], self._permissions.folder)
        try:
            return await run_command(
                [program, *argv[1:]],
                cwd=cwd,
                env=env,
                stdin=None if stdin is None else text.encode(),
                max_output=self._options.max_output,
            )
        except FileNotFoundError as error:
            raise ActionFailed("not-found", f"there is no command {argv[0]!r}: install it, or check PATH") from error
        except OSError as error:
            kind = "too-large" if error.errno == errno.E2BIG else "refused"
            raise ActionFailed(kind, f"{argv[0]!r} can't be run: {error.strerror}") from error
        except ValueError as error:
            raise ActionFailed("refused", f"an argument or a variable can't be passed on: {error}") from error

    def _result(self, result: CommandResult) -> Json:
        stderr = result.stderr.decode(errors="replace").rstrip("\n")
        if result.exit_code not in self._options.ok:
            shown = self._permissions.redact(stderr, is_tail=len(result.stderr) >= STDERR_LIMIT)
            raise ActionFailed("exit", f"{_describe_exit(result.exit_code)}{_describe_stderr(shown)}")
        if result.is_truncated:
            limit = self._options.max_output
            raise ActionFailed(
                "too-large", f"its output has more than {limit:,} bytes: raise `max_output`, or use a file"
            )
        return {"exit_code": result.exit_code, "stdout": self._read(result.stdout), "stderr": stderr}

    def _read(self, stdout: bytes) -> Json:
        if self._options.output == "bytes":
            return base64.b64encode(stdout).decode()
        try:
            text = stdout.decode()
        except UnicodeDecodeError as error:
            raise ActionFailed("failed", "its output is not UTF-8 text: set `output: bytes`") from error
        match self._options.output:
            case "lines":
                return cast("list[Json]", text.splitlines())
            case "json":
                return self._parsed(text)
            case _:
                return text.rstrip("\n")

    def _parsed(self, text: str) -> Json:
        try:
            value: Json = json.loads(text)
        except (ValueError, RecursionError) as error:
            start = self._permissions.redact(text)[:60]
            raise ActionFailed("failed", f"its output is not JSON: {error}: it starts with {start!r}") from error
        return value


def _check_is_no_option(item: str, index: int, *, follows_option: bool) -> None:
    # Without the value, which may be secret.
    if item.startswith("-"):
        raise ActionFailed(
            "refused",
            f"argument {index} starts with '-', so the command would read it as an option: put a constant `--` before "
            f"it, but not right after an option, or start it with constant text",
        )
    if follows_option:
        raise ActionFailed(
            "refused", f"argument {index} follows an option, whose argument it may be: put a constant `--` before it"
        )


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def _describe_stderr(stderr: str) -> str:
    text = stderr.strip()
    if not text:
        return ""
    return f": {text}" if len(text) <= MAX_STDERR_IN_ERROR else f": …{text[-MAX_STDERR_IN_ERROR:]}"
