"""Tasks for hosts without tasks: five tools, and text that a model reads."""
