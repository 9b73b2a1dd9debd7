"""Getting work to this process: slots, claims, heartbeats and the sweeper."""
