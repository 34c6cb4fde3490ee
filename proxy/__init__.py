"""The only room with trio and sockets: everything between a client and its broker.

- `framing`, `session`: sans-IO; bytes to runs of frames, one client connection to commands
- `desk`, `answering`, `enforcing`, `rewrite`: what one broker's frames mean, are answered with, are refused by,
  are rewritten to
- `broker_copy`: what is known of one broker; `probe`, `led`, `questions`, `client`,
  `attempts`: how it is asked
- `tail`, `log_reader`, `tail_questions`: how its coordinator's log is read
- `pump`, `server`, `addresses`: sockets, listeners, a gateway's ports
- `sidecar`: everything put together; `descriptors`: how many sockets it may have
- `outlet`: its journal; `topic_outlet`, `producing`: how that gets to a topic
- `admin`: its HTTP port, JSON and pages; `surveying`: all groups, looked at between the frames
- `config`, `sections`, `cli`: its face; `commandline`: what people and scripts ask about groups
- `logs`, `narrating`: what it says of itself, and of groups

Facts of the protocol that are easily forgotten here:
- Produce with acks=0 has no reply. SaslHandshake v0 is followed by raw tokens. ApiVersions replies
  always have header v0.
- A parked JoinGroup blocks its connection for minutes, and that is normal. A closed connection is not
  a leave.
- Clients close on a wrong correlation id, and brokers close on an unknown version.
- A client's connections to its coordinator and to its leaders are different connections.
"""
