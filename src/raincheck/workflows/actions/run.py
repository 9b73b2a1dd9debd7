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
from raincheck.workflows.actions.command import CommandResult, run_command
from raincheck.workflows.actions.injection import STDIN_INDEX, find_injections
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.sandbox import text_of
from raincheck.workflows.expressions.template import (
    InvalidExpression,
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
            roots = _roots_in(program)
            if roots is not None and roots - {"env"}:
                yield ("run",), "callers must not choose the program: make the first item constant"
            elif not has_expressions(program) and not is_command(program, permissions.folder):
                yield ("run",), explain_missing_command(program, permissions.folder)
            for index, message in find_injections([text_of(item) for item in run.argv], str(run.stdin)):
                yield ("run", "stdin") if index == STDIN_INDEX else ("run", "argv", index), message
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
        is_after_dashes = False
        for index, text in enumerate(self._argv):
            starts_with_value = not isinstance(text.parts[0], str)
            value = text.render(scope)
            for item_value in value if isinstance(value, list) else [value]:
                item = rendered_text(item_value, f"argument {index} of the command")
                if starts_with_value and item.startswith("-") and not is_after_dashes:
                    raise ActionFailed(
                        "refused",
                        f"argument {index} would be {item[:60]!r}, which the command would read as an option: put a "
                        f"constant `--` before it, or start it with constant text",
                    )
                yield item
            is_after_dashes |= text.parts == ("--",)

    def _folder(self, cwd: Json) -> Path:
        folder = (self._permissions.folder / ("." if cwd is None else str(cwd))).resolve()
        if not self._permissions.allows_folder(folder):
            raise ActionFailed("refused", f"{cwd!r} is not in the file's folder: add it to `allow.folders`")
        if not folder.is_dir():
            raise ActionFailed("not-found", f"there is no folder {cwd!r}")
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
            raise ActionFailed("exit", f"{_describe_exit(result.exit_code)}{_describe_stderr(stderr)}")
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
                return _parsed(text)
            case _:
                return text.rstrip("\n")


def _roots_in(text: str) -> frozenset[str] | None:
    """Return the first names of a text's expressions; None if it is invalid, which is reported elsewhere."""
    try:
        return frozenset(path[0] for path in TextTemplate.parse(text).paths)
    except InvalidExpression:
        return None


def _parsed(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ActionFailed("failed", f"its output is not JSON: {error}: it starts with {text[:60]!r}") from error
    return value


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
