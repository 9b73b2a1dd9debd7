"""The program `raincheck`. Each group of commands has a module of its own here."""

import errno
import os
import sys

FAILED = 1
COULD_NOT_RUN = 2
INTERRUPTED = 130

UNWRITABLE = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})
"""Why what is printed may not arrive. Of a pipe that nobody reads any more, typer takes care."""


def main() -> None:
    """Run the program. Without the extra that it needs, it says what to install."""
    try:
        from raincheck.cli.app import program

        program()
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        _end_unheard(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "raincheck":
            raise
        how = "pip install 'raincheck[cli]' (in a clone: pip install '.[cli]')"
        sys.stderr.write(f"raincheck: {error.name!r} is missing: install it with {how}\n")
        sys.exit(COULD_NOT_RUN)


def _end_unheard(error: OSError) -> None:
    """What was printed did not arrive: say so, and try it no more."""
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - until the program ends
    why = error.strerror or str(error)
    sys.stderr.write(f"raincheck: this can't be written to stdout: {why}. Whatever had ended can be fetched again\n")
    sys.exit(FAILED)
