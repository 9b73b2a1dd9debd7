"""The tools that a server offers, and the tasks that run their calls."""
