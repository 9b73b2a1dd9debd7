"""The rules of a task, as pure functions over frozen records: no I/O, no clock, no randomness."""
