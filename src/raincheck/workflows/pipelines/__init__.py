"""Pipelines: steps with dependencies, retries and compensation."""
