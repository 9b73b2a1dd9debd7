"""A file of workflows for the tests of the commands."""

from pathlib import Path
from textwrap import dedent
from typing import Any

FLOWS = """
raincheck: 1
workflows:
  release:
    description: Release a version.
    input:
      tag: {type: string, pattern: "^v", description: What to release.}
      copies: {type: integer, default: 2}
    steps:
      - id: build
        run: {shell: 'echo built >> built.txt; echo "$TAG"', env: {TAG: "{{ input.tag }}"}}
      - id: publish
        set: {tag: "{{ input.tag }}", copies: "{{ input.copies }}", built: "{{ steps.build.result.stdout }}"}
  confirm:
    steps:
      - id: ask
        ask: {message: "Really?", schema: {sure: {type: boolean}}}
      - id: say
        set: {sure: "{{ steps.ask.result.sure }}"}
  hold:
    steps:
      - id: wait
        run: [sh, -c, "touch begun; while [ ! -e go ]; do sleep 0.05; done; echo let go"]
      - id: say
        set: old
  fail:
    steps:
      - id: first
        run: [sh, -c, "echo first >> fail.txt; echo 1"]
      - id: beside
        needs: []
        run: [sh, -c, "echo beside >> fail.txt; echo 2"]
      - id: second
        needs: [first, beside]
        run: [sh, -c, "echo second >> fail.txt; test -e mended"]
      - id: last
        set: {first: "{{ steps.first.status }}"}
"""


def write_flows(text: str = FLOWS, name: str = "flows.yaml") -> Path:
    """Write the file in the current folder."""
    path = Path(name)
    path.write_text(dedent(text), encoding="utf-8")
    return path


def workflow_text(name: str, **fields: Any) -> str:
    """Return a file with a workflow of one step."""
    more = "".join(f"    {key}: {value}\n" for key, value in fields.items())
    return f"raincheck: 1\nworkflows:\n  {name}:\n{more}    steps:\n      - {{id: one, set: {{name: {name}}}}}\n"
