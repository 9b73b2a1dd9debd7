"""Programs that take a script, and programs that run another one: which of their arguments those are."""

import re
from dataclasses import dataclass

from raincheck.workflows.command_options import Options


@dataclass(frozen=True)
class Wrapper:
    """A program that runs the command that follows its own arguments."""

    options: Options
    operands: int = 0
    """How many of its own come before the command."""
    takes_assignments: bool = False
    is_shell: bool = False
    """Whether what follows is handed to a shell, or may be."""


def _wrapper(taking: str = "", *long_taking: str, operands: int = 0, is_shell: bool = False) -> Wrapper:
    options = Options(taking=taking, long_taking=long_taking, is_wrapper=True)
    return Wrapper(options, operands, takes_assignments=False, is_shell=is_shell)


INTERPRETERS = (
    (
        re.compile(r"(?:r?bash|[akz]?sh|dash|m?ksh\d*|t?csh)[\d.-]*"),
        Options("c", "oO", long_taking=("rcfile", "init-file"), is_shell=True),
    ),
    (
        re.compile(r"fish"),
        Options("cC", "dDfop", long_code=("command", "init-command"), long_taking=("debug", "features", "profile")),
    ),
    (re.compile(r"(?:python|pypy).*"), Options("c", "WX", ending="cm", long_taking=("check-hash-based-pycs",))),
    (re.compile(r"perl[\d.]*"), Options("eE", "I", "DFMVdimx")),
    (re.compile(r"ruby[\d.]*"), Options("e", "CEIr", "FKix", long_taking=("encoding",))),
    (
        re.compile(r"node(?:js)?[\d.]*"),
        Options(
            "ep",
            "Cr",
            long_code=("eval", "print"),
            long_taking=("require", "import", "conditions", "loader", "experimental-loader", "input-type"),
        ),
    ),
    (re.compile(r"php[\d.]*"), Options("rBRE", "cdz", ending="f")),
    (re.compile(r"lua(?:jit)?[\d.]*"), Options("e", "l")),
    (re.compile(r"[gmn]?awk"), Options("e", "Fv", ending="f", long_taking=("assign",), first_is_code=True)),
    (re.compile(r"g?sed"), Options("e", "l", ending="f", long_code=("expression",), first_is_code=True)),
)
"""Patterns for names, and where scripts are among the arguments."""

ENV = Wrapper(
    Options("S", "uC", long_code=("split-string",), long_taking=("unset", "chdir"), is_wrapper=True),
    takes_assignments=True,
)
_SUDO = ("user", "group", "host", "prompt", "chdir", "chroot", "close-from", "command-timeout", "other-user")
_XARGS = ("arg-file", "delimiter", "max-args", "max-chars", "max-lines", "max-procs")

WRAPPERS = {
    "env": ENV,
    "sudo": Wrapper(Options(taking="CDghpRrTtUu", long_taking=_SUDO, is_wrapper=True), takes_assignments=True),
    "doas": _wrapper("Cu"),
    "timeout": _wrapper("ks", "signal", "kill-after", operands=1),
    "nice": _wrapper("n", "adjustment"),
    "ionice": _wrapper("cnPpu", "class", "classdata"),
    "stdbuf": _wrapper("eio", "input", "output", "error"),
    "time": _wrapper("fo", "format", "output"),
    "xargs": _wrapper("adEILnPs", *_XARGS),
    "chroot": _wrapper(operands=1),
    "taskset": _wrapper(operands=1),
    "chrt": _wrapper("DPT", operands=1),
    "strace": _wrapper("abeEIoOpPsSuX"),
    "nsenter": _wrapper("tSG", "target", "setuid", "setgid"),
    **{name: _wrapper() for name in ("nohup", "setsid", "unshare", "busybox", "toybox", "command", "exec")},
    "flock": _wrapper("wE", "wait", "timeout", "conflict-exit-code", operands=1, is_shell=True),
    "ssh": _wrapper("BbcDEeFIiJLlmOopQRSWw", operands=1, is_shell=True),
    "watch": _wrapper("n", "interval", is_shell=True),
    **{name: _wrapper(is_shell=True) for name in ("su", "runuser", "parallel", "eval", "script")},
}

STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
"""Names of the standard input."""

RUNS_NEXT = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""Arguments of `find` after which there is a command."""


def options_of(program: str) -> Options | None:
    """Those of a program that takes a script."""
    name = program.rpartition("/")[2]
    return next((options for names, options in INTERPRETERS if names.fullmatch(name)), None)
