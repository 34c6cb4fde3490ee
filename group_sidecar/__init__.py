"""A proxy beside a Kafka broker that follows the broker's consumer groups."""
