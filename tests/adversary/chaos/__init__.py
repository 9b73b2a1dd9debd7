"""Chaos: real servers and workers under load and under faults, and a verifier that sees only what users see."""
