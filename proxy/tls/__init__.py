"""TLS of clients' connections and of the admin port: contexts from files, certificates and handshakes.

- `contexts`: TLS contexts that are made from files, and made again when the files have changed
- `certificates`: when certificates expire, and whom they name
- `handshake`: a handshake over a non-blocking socket, before the data path takes over
"""
