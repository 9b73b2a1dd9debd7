"""`raincheck tasks`: read the tasks of a store, and control them."""
