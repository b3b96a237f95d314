"""A file for each type of target. Each loads its library when it is opened."""
