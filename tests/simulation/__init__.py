"""Deterministic simulation of engines, their store, their clocks and the network, in one process and one thread.

A seed determines every interleaving, crash and delay, so a run can be repeated. `python -m tests.simulation` runs many
seeds.
"""
