"""Where frames come from, behind one port."""
