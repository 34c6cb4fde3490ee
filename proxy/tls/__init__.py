"""TLS with clients, with brokers and with token endpoints.

- `reloading_contexts`: TLS contexts that are made from files, and made again when the files have changed
- `certificate_expiry`, `file_stamp`: when certificates expire, and whether their files have changed
- `client_hello`: the first message of a client, and the server name in it
- `subject`: the subject of a certificate as Kafka writes it
- `handshake`: a handshake over a non-blocking socket, before the data path takes over
- `fair_threads`: threads that client addresses share in turn
"""
