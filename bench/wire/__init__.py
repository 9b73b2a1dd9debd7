"""Measure servers over HTTP on this machine: each server in its own process, all called by the same client.

Most figures are a ratio to the plain tool call of the SDK that raincheck is built on, in the same run.
"""
