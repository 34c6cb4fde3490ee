"""Sends the same questions to the broker and to the sidecar, for every state, API, version and broker."""
