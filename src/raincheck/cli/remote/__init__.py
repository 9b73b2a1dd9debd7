"""Commands that call a server: connecting, waiting and reporting."""
