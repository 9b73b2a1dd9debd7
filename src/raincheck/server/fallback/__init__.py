"""Tasks for fallback hosts: five tools, and text that a model reads."""
