"""The admin port: metrics, health, the groups as JSON and as pages, and the reload, over HTTP.

- `app`: which path is answered by what; `access`: who is let in; `replies`: how every reply leaves
- `serving`, `tls`: the listening socket; `live`: what a running sidecar gives to it; `sources`: what has to be given
- `reading`, `rows`, `members`: what is told of groups, read once for JSON and pages alike
- `models`, `events`, `api`, `openapi`: the JSON under /api/v1/ and its description
- `pages`, `rendering`, `timeline_picture`, `words`: the same in HTML

Read-only, but for the reload: it has the operator's own file read again. /healthz and /readyz answer everybody, and so
does /metrics unless `admin_access.metrics` says otherwise, though it has the names of groups where `metrics.detail` is
`group` or finer. Nothing here knows Kafka connections, nor how metrics and views are made.
"""
