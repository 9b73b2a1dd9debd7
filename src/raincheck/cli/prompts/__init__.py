"""Questions in the terminal: arguments, forms and open questions of tasks."""
