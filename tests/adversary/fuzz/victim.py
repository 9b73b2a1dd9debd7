"""Another owner, whose tasks no attacker may see or change."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.adversary.fuzz.secrets import PlantedSecrets
from tests.adversary.served.caller import PoliteCaller

TASKS = {"remember": "text", "wait": "note", "confirm": "question"}
"""Tools, and the argument that takes the victim's text."""

EXPECTED = {"remember": "completed", "wait": "working", "confirm": "input_required"}


MAX_POLLS = 150


@dataclass
class Victim:
    """An owner with a task that has ended, one that waits, and one that asks."""

    caller: PoliteCaller
    tasks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ids by the tools."""

    @classmethod
    async def create(cls, port: int, secrets: PlantedSecrets) -> "Victim":
        caller = PoliteCaller(port, f"Bearer {secrets.victim_token}")
        victim = cls(
            caller, {tool: await caller.start(tool, {name: secrets.victim_text}) for tool, name in TASKS.items()}
        )
        for _ in range(MAX_POLLS):
            if not await victim.faults():
                break
            await asyncio.sleep(0.2)
        return victim

    async def faults(self) -> list[str]:
        """Compare its tasks to what they must be."""
        statuses = {tool: str((await self.caller.get(id_))["status"]) for tool, id_ in self.tasks.items()}
        return [
            f"the victim's task of {tool} is {statuses[tool]}, not {EXPECTED[tool]}"
            for tool in TASKS
            if statuses[tool] != EXPECTED[tool]
        ]
