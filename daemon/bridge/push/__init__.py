"""Pushes over HTTP, to people and to webhooks: a client that can be trusted, texts, pictures, digests."""
