"""State machines: states, guarded transitions and timeouts."""
