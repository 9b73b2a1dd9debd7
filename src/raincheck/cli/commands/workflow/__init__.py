"""`raincheck workflow`: check, draw and run the workflows of a file, and control their instances."""
