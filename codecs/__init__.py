"""Kafka's wire formats: bytes to messages and back.

The package imports nothing else of the project. It does no I/O, reads no clock and writes no log.

- `messages/`: one module per API
- `api_registry`: the table of APIs, and which versions of each are decoded
- `headers`: request and response headers, and the frame around a message
- `schema`, `layouts`: a message declared once with its versions, and the construct of each version
- `generated_code`: the same declarations as plain generated functions, for group traffic
- `primitives`: Kafka's primitive types, bounded
- `fast_instances`: cheap frozen dataclasses
- `errors`: `DecodeError`, and Kafka's error codes
- `record_batches`, `record_batch_writer`, `compression`: record batches, read and written
- `offsets_topic`, `offsets_topic_values`, `offset_columns`: keys and values of ``__consumer_offsets``
- `consumer_protocol`: subscriptions and assignments inside JoinGroup and SyncGroup
- `address_scan`: finds the addresses of brokers in a reply without decoding it
- `reply_tail`, `reply_tail_fields`: the ends of replies that have addresses after all records
"""
