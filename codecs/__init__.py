"""Kafka's wire formats: bytes to messages and back.

The package imports nothing else of the project. The package does no I/O, reads no clock and writes no log.

- `messages/`: one module per API
- `api_registry`: the table of APIs, and which versions of each are decoded
- `headers`: request and response headers, and the frame around a message
- `schema`, `layouts`: a message declared once with its versions, and the construct of each version
- `generated_code`: fast functions that read and write a message, generated from its construct
- `primitives`: Kafka's primitive types, bounded
- `fast_instances`: creates instances of frozen dataclasses cheaply
- `errors`: `DecodeError`, and Kafka's error codes
- `record_batches`, `record_batch_writer`, `compression`: record batches, read and written
- `offsets_topic`, `offsets_topic_values`: keys and values of ``__consumer_offsets``
- `offset_columns`: encodes many keys of ``__consumer_offsets`` or rows of an OffsetFetch reply at once
- `consumer_protocol`: subscriptions and assignments inside JoinGroup and SyncGroup
- `address_scan`: finds the addresses of brokers in a reply without decoding it
- `reply_tail`, `reply_tail_fields`: the ends of replies that have addresses after all other fields
"""
