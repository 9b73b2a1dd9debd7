"""The tools that a server offers, and how their calls are run as tasks."""
