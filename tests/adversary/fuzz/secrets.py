"""Secrets that are planted where an answer must not take them from."""

from dataclasses import dataclass
from pathlib import Path
from random import Random


@dataclass(frozen=True)
class PlantedSecrets:
    """What callers must not see: of the environment, of the disk, of another owner."""

    environment: str
    folder: Path
    victim_token: str
    victim_text: str

    @classmethod
    def draw(cls, random: Random, folder: Path) -> "PlantedSecrets":
        def word(name: str) -> str:
            return f"{name}-{random.getrandbits(64):016x}"

        return cls(word("environment"), folder, f"verified-victim.{random.getrandbits(64):016x}", word("victim"))

    @property
    def in_answers(self) -> dict[str, bytes]:
        """What no answer to a fuzzer contains."""
        return {
            "a secret of the environment": self.environment.encode(),
            "the path of the store": str(self.folder).encode(),
            "a token of another caller": self.victim_token.partition(".")[2].encode(),
            "the data of another owner": self.victim_text.encode(),
        }

    @property
    def in_logs(self) -> dict[str, bytes]:
        """What the log never contains: tokens, and the content of tasks."""
        tokens = {"a token of a fuzzer": b"Bearer fuzzer-"}
        return tokens | {
            name: self.in_answers[name] for name in ("a token of another caller", "the data of another owner")
        }
