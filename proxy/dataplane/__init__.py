"""Moves bytes between clients and brokers.

The core (`session`, `framing`, `commands`, `outcomes`) does no I/O: a session receives bytes and returns commands.

- `event_loop`, `poller`: share one thread with trio; wait for all sockets with one epoll
- `connections`, `connection`: serve all connections; read and send the bytes of one connection
- `draining`: ends all connections in steps when the sidecar stops
- `endpoint_socket`, `delivered_closes`: one socket with its backlog; closing a socket without a reset
- `tls_endpoint`, `tls_records`: one socket with TLS; where TLS records begin and end
- `session`: the order of requests and replies on one client connection
- `framing`: where frames begin and end in a stream
- `frame_editor`: changes the length and the end of a frame that passes
- `commands`: what a session asks its connection to do
- `outcomes`: the protocol between a session and the dispatcher
- `buffer_budget`, `connections_per_address`: the limits that all connections share
- `held_request_budget`: limits the memory of requests that are held while they arrive in pieces
- `raw_sasl_tokens`, `tls_detection`, `produce_acks`: the raw tokens after SaslHandshake v0, TLS on a plain port, acks=0
- `fast_path`: forwards small complete frames in compiled code; `io_uring.h` sends them in one system call
"""
