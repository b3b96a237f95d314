"""What the process shares with the machine: signals, systemd, memory, cores, GPUs by name, threads that end."""
