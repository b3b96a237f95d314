"""How a record or a frame is written down for others."""
