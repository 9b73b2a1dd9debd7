"""Pure translation between stored tasks and the wire: one module for each generation of tasks."""
