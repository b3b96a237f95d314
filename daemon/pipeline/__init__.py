"""A frame becomes a result: the board, the lanes, the ledger, the outbox."""
