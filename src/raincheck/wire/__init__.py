"""What goes over the wire and comes from it, as pure translation: one module for each generation of tasks."""
