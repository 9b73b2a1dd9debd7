"""The program `raincheck`. Each command has its own module in `commands`."""

import errno
import os
import sys

FAILED = 1
COULD_NOT_RUN = 2
INTERRUPTED = 130

UNWRITABLE = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})
"""Reasons why output can't be written. Typer handles a pipe whose reader was closed."""


def main() -> None:
    """Run the program. If the required extra is missing, print what to install."""
    try:
        from raincheck.cli.app import program

        program()
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        _exit_on_stdout_error(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "raincheck":
            raise
        command = "pip install 'raincheck[cli]' (in a clone: pip install '.[cli]')"
        sys.stderr.write(f"raincheck: {error.name!r} is missing: install it with {command}\n")
        sys.exit(COULD_NOT_RUN)


def _exit_on_stdout_error(error: OSError) -> None:
    """Report that the output could not be written, and discard the rest of it."""
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open until the program ends
    reason = error.strerror or str(error)
    sys.stderr.write(
        f"raincheck: can't write to stdout: {reason}. Results of tasks that have ended can be fetched again\n"
    )
    sys.exit(FAILED)
