"""The proxy between clients and their broker. Only this package uses trio, sockets and TLS.

- `dataplane/`: moves bytes: event loop, connections, sessions, framing
- `listeners/`: accepts clients and connects them to their broker
- `handlers/`: decides what each request and each reply leads to; uses neither trio nor sockets
- `broker/`: what the sidecar knows of one broker, and the requests that it sends over its own connection
- `offsets_log/`: reads ``__consumer_offsets``
- `journal/`: writes records for the fleet pipeline
- `config/`: settings, their errors, and the reload
- `runtime/`: parts that every package may use: addresses, logging, back-off, supervision, clocks
- `tls/`: TLS contexts, certificates and handshakes
- `admin/`: the HTTP port: metrics, health, JSON, pages
- `commandline/`: ``group-sidecar groups`` and ``group-sidecar fleet``
- `checks/`: what ``group-sidecar check-config`` checks beyond single settings
- `served_brokers`: the brokers that this sidecar serves, and the background tasks of each
- `bootstrap_broker`: the broker to which a gateway connects the clients that come to its bootstrap address
- `gateway_routes`: which port and which name of a gateway lead to which broker
- `hand_over`: what this process may do while its predecessor or its successor runs, during a hot restart
- `sidecar`: starts and stops everything in order
- `sidecar_process`: runs a sidecar as a process, and handles the signals
- `cli`: the command ``group-sidecar``

Facts of the protocol that are easily forgotten here:
- A Produce request with acks=0 has no reply. SaslHandshake v0 is followed by raw tokens. ApiVersions replies always
  have header v0.
- The broker may hold back the reply to a JoinGroup for minutes. Meanwhile its connection is blocked, and that is
  normal.
- A client does not leave its group when it closes its connection.
- Clients close the connection on a wrong correlation id. Brokers close it on an unknown version.
- A client uses one connection to its group coordinator and others to the leaders of its partitions.
"""
