"""The actions that a step of a workflow can take."""
