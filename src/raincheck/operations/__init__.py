"""What an operator can ask of a store, shared by the CLI and the dashboard."""
