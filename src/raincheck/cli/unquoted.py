"""The quotes that somebody forgot around the command of a server, as in `raincheck call python server.py TOOL a=1`."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from raincheck.cli.arguments import PAIR, STDIN
from raincheck.cli.endings import Unusable
from raincheck.cli.secrecy import cover

ADDRESS = re.compile(r"https?://|unix:|\S+:\d+")

FILES = (".py", ".js", ".mjs", ".cjs", ".ts", ".jar", ".sh")


def check_quotes(server: str, tool: str | None, arguments: Sequence[str]) -> None:
    """Refuse words that can only belong to the command of a server of one word.

    Raises:
        Unusable: it says what to write.
    """
    if tool is None or ADDRESS.match(server) or len(server.split()) != 1:
        return
    words = [server, tool, *arguments]
    first = next((number for number in range(2, len(words)) if _is_argument(words[number])), len(words))
    if first == 2 and not _is_file(tool):
        return
    # The last word before the arguments is the tool, unless it can't be one.
    end = first if _is_file(words[first - 1]) else first - 1
    command = shlex.quote(cover(words[:end]).text)
    rest = " ".join(shlex.quote(word) for word in cover(words[end:]).words)
    stray = cover([tool if _is_file(tool) else words[2]]).text
    why = "is a file, and no tool" if _is_file(tool) else "is no argument, which would be name=value"
    raise Unusable(
        f"{stray!r} {why}: if it belongs to the command of the server, put all of that in quotes, as in "
        f"{' '.join(filter(None, ['raincheck call', command, rest]))}"
    )


def _is_argument(word: str) -> bool:
    return word == STDIN or word.startswith("@") or PAIR.fullmatch(word) is not None


def _is_file(word: str) -> bool:
    # A tool may well be called as some file here is, unless it looks like one.
    looks_so = os.sep in word or Path(word).suffix != ""
    return word.endswith(FILES) or (looks_so and Path(word).is_file())
