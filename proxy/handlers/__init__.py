"""What a request or a reply leads to. No trio and no sockets: the session calls, and gets an outcome.

- `dispatcher`: classifies requests and replies, and calls the handler of their API
- `api_table`: which handler each API has; `api_handler` has the base classes

Handlers, each with the pending replies that it creates:

- `group_requests`: requests about groups; `pending_exchange` handles the replies
- `fetches`, `rule_changes`, `sasl`: Fetch; requests that change rights; SASL handshakes and tokens
- `unread_apis`: other requests that change groups or offsets; `undecoded_writes` handles the replies
- `rewritten_replies`, `find_coordinator`: requests that are forwarded unread, and whose replies are changed

What the handlers use:

- `observer`: requests and replies that change the copy of the coordinator
- `local_answers`: whether a request is answered here; `reply_builder` encodes the answer, `reply_cache` keeps it
- `decode_limits`: how many array elements of a message are decoded, and how large an answer may be
- `enforcement`: asks the policies; `error_replies` builds a refusal, `partial_commit` removes refused partitions
- `group_read_access`: asks the broker whether a joining client may read its group
- `broker_refusals`: refusals by the broker itself, counted by policy
- `relay`, `injected_requests`: requests that the sidecar sends on a client's own connection
- `version_translation`, `offset_fetch_translation`: requests in versions that the broker lacks
- `kip40_group_metadata`: the GroupMetadata request of KIP-40's draft
- `api_versions`: the ApiVersions reply that clients get; `reply_rewriter` changes the other replies
- `disconnect`: closes a connection because of a frame that must not pass
"""
