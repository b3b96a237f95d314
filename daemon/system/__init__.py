"""The process and its machine: signals, systemd, memory, cores, GPU names, threads, child processes."""
