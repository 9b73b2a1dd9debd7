"""Running one attempt at a task."""
