"""The program `raincheck`. Each group of commands has a module of its own here."""

import sys

COULD_NOT_RUN = 2
INTERRUPTED = 130


def main() -> None:
    """Run the program. Without the extra that it needs, it says what to install."""
    try:
        from raincheck.cli.program import program

        program()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "raincheck":
            raise
        how = "pip install 'raincheck[cli]' (in a clone: pip install '.[cli]')"
        sys.stderr.write(f"raincheck: {error.name!r} is missing: install it with {how}\n")
        sys.exit(COULD_NOT_RUN)
