"""What Lookout promises by the clock: `make speed` on a machine that does nothing else. `make test` leaves it out."""
