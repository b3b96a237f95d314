"""`python -m daemon` is `lookout`."""

from daemon.cli import main

main()
