"""The commands of `raincheck`, a module each."""
