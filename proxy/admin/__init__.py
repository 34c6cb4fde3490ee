"""The admin port: metrics, health, groups as JSON and as pages, and the reload, over HTTP.

Everything is read-only except the reload, which reads the operator's own file again. /healthz, /livez, /readyz and
/startupz answer every client. /metrics also answers every client, unless `admin_access.metrics` is `guarded`. With
`metrics.detail` of `group` or finer, the metrics contain the names of groups. The package opens no connections to
brokers.

- `app`, `access`, `guess_limit`: the routes, who may use them, and how many wrong tokens a client may send
- `health`: the endpoints for orchestrators
- `http_server`, `http_connection`, `tls`: the listening socket, one HTTP/1.1 connection, and TLS
- `http_replies`: JSON, errors, compression and security headers of every reply
- `sources`, `live_sources`: what the admin port reads from, and how a running sidecar provides it
- `group_data`, `group_rows`, `member_rows`: the data of groups, which JSON and pages share
- `json_api`, `json_models`, `timeline_models`, `config_model`, `openapi`: the JSON under /api/v1/ and its description
- `pages`, `templating`, `timeline_picture`, `sentences`: the same data as HTML
"""
