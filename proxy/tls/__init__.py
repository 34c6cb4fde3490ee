"""TLS of clients' connections, of the sidecar's own connections and of token endpoints.

- `contexts`: TLS contexts that are made from files, and made again when the files have changed
- `certificates`, `file_stamp`: when certificates expire, and whether their files have changed
- `subject`: the subject of a certificate as Kafka writes it
- `handshake`: a handshake over a non-blocking socket, before the data path takes over
"""
