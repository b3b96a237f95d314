"""Where frames come from, behind one port. docs/decisions.md says why."""
