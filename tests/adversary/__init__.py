"""Attacks on running servers and workers, by programs that know only what users know: `scripts/adversary --help`."""
