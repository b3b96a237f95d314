"""What contributors add: a source type, a stage, a metric. Each is a patch that a test applies and runs."""
