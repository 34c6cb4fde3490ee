"""Writes the records for the fleet pipeline.

- `writer`: the task that writes facts and snapshots to the folder and to the topic
- `topic_writer`: sends records to a topic on the sidecar's broker
- `idempotent_producer`: batches, sequence numbers and retries (KIP-98), without I/O
"""
