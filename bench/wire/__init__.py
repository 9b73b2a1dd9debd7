"""What callers see over HTTP on this machine: each server in a process of its own, all asked by the same client.

Everything is a ratio to the plain tool call of the SDK that raincheck stands on, in the same run.
"""
