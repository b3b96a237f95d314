"""Other programs over the same recording, compared with Lookout and with limits of the hardware."""
