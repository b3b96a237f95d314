"""What people use instead of Lookout, over the same recording, beside the limits of the hardware."""
