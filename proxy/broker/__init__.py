"""Keeps what the sidecar knows of one broker, and sends requests over the sidecar's own connections.

- `broker_state`: versions, authorizer, grants, topic ids and reachability of one broker
- `kafka_client`, `authentication`: a connection of the sidecar's own, and its TLS and SASL
- `group_queries`, `log_queries`: single requests about groups, offsets and logs, in a version that the broker has
- `background_jobs`: sends requests and applies their replies to the copy
- `probe`: asks for information that no client's traffic shows; `leaders` finds the partitions that the broker leads
- `reconcile`: asks about groups, topic ids and topic names whose state is in doubt
- `shrink`: removes members from groups over their limit
- `verification`, `verification_window`, `verification_diff`: compare a share of local answers with the broker's
- `principals`, `authorization_cache`: which user a connection belongs to, and which rights the broker granted
- `topic_ids`: which topic ids the broker still has
- `added_versions`: which versions the sidecar adds to those of the broker
- `address_rewrite`, `gateway_apis`: addresses and versions in replies; which requests may pass a gateway
- `deferred_replies`: replies that were forwarded before they were decoded
- `lost_requests`: requests whose connection ended before the reply
"""
