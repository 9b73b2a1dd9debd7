"""From YAML to checked models, with the line of every error."""
