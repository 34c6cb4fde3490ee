"""Accepts clients and connects each to its broker.

- `acceptor`, `acceptor_thread`: accept a client and begin the connection to its broker, without and with a thread
- `admission`: admits a client whose broker connection is established at once
- `ports`: opens the listening sockets, or uses sockets that were passed to this process
- `passed_sockets`: the sockets that a service manager or a predecessor has passed
- `node_ports`: the ports that a gateway opens for the brokers of its cluster
- `successor`, `predecessor`: the process that gets the sockets in a hot restart; the process that had them
- `server`: serves the ports, and handles clients whose connection to the broker takes time
- `handshakes`: reads the PROXY header and does the TLS handshakes of a connection, before Kafka's first request
- `listener_certificates`: which certificate a client gets
- `broker_certificates`: under which certificate a client's connection to the broker is made
- `proxy_protocol`: reads the header with which a load balancer reports the client's address
- `descriptor_limits`: how many connections the process's limit on open files allows
"""
