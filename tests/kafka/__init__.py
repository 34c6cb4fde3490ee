"""Real brokers, real tools and the sidecar itself, as processes that tests start and stop."""
