"""The admin port: metrics, health, groups as JSON and as pages, and the reload, over HTTP.

Everything is read-only except the reload, which reads the operator's own file again. /healthz and /readyz answer
everybody. So does /metrics unless `admin_access.metrics` says otherwise, although it contains the names of groups when
`metrics.detail` is `group` or finer. The package knows no Kafka connections.

- `app`, `access`: the routes, and who may use them
- `http_server`, `http_connection`, `tls`: the listening socket, one HTTP/1.1 connection, and TLS
- `http_replies`: JSON, errors, compression and security headers of every reply
- `sources`, `live_sources`: what the admin port reads from, and how a running sidecar provides it
- `group_data`, `group_rows`, `member_rows`: reads groups once, for JSON and pages alike
- `json_api`, `json_models`, `timeline_models`, `openapi`: the JSON under /api/v1/ and its description
- `pages`, `templating`, `timeline_picture`, `sentences`: the same data as HTML
"""
