"""What needs a GPU: run by hand on a machine that has one; `make test` never comes here."""
