"""Arguments and options of every command, by group. A command imports its work when it runs."""
