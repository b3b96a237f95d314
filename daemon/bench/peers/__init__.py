"""What people use instead of Lookout, run over the same recordings."""
