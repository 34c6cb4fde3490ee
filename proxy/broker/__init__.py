"""Keeps what the sidecar knows of one broker, and sends requests over the sidecar's own connections.

- `broker_state`: connects the parts below; each part owns its own state

What is known:

- `coordinator_copy`: the copy of the group coordinator; `group_coordinators` knows which broker coordinates a group
- `client_access`: decides what a client of one listener may see
- `authorizer_state`: whether the broker has an authorizer, and the rights that it granted, for all listeners
- `client_principals`, `authorization_cache`: which user a connection belongs to, and which rights the broker granted
- `broker_versions`, `added_versions`: which versions the broker offers, and which versions the sidecar adds
- `answer_settings`: the settings of local answers
- `topic_names`, `existing_topic_ids`: the names of topics by id, and which topic ids the broker still has
- `needed_log_bounds`: which log starts and ends are needed
- `reachability`: whether the broker answers the sidecar
- `deferred_replies`: replies that were forwarded before they were decoded
- `lost_requests`: requests whose connection ended before the reply

The sidecar's own requests:

- `own_connections`: connects to the broker; `kafka_client`, `own_credentials`: a connection, and its TLS and SASL
- `broker_errors`: why a connection or a request failed
- `port_protocol`: which protocol a port speaks
- `credential_files`: reads the files with passwords and tokens
- `bearer_tokens`, `token_endpoint`, `http_client`: tokens for OAUTHBEARER, from a file or over HTTP
- `group_queries`: single requests about groups, committed offsets and brokers, in a version that the broker has
- `log_bound_queries`: requests for log ends and log starts of partitions
- `topic_log_queries`: requests that read the log of one topic, such as `__consumer_offsets`
- `background_jobs`: sends requests and applies their replies to the copy
- `probe`: asks for information that no client's traffic shows; `leaders` finds the partitions that the broker leads
- `reconcile`: asks about groups, topic ids and topic names whose state is in doubt
- `shrink`: removes members from groups over their limit
- `verification`, `verification_window`, `verification_diff`: compare a share of local answers with the broker's

What a gateway needs:

- `address_rewrite`, `gateway_apis`: addresses in replies; which requests may pass a gateway
- `tail_rewrite`: addresses at the ends of replies, which may be too long to be held
"""
