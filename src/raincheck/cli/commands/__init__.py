"""The commands of `raincheck`, one module each."""
