"""The checks of `group-sidecar check-config` that go beyond single settings.

- `findings`: what a check finds: a fault, or a warning
- `offline`: all checks that need neither a broker nor clients
- `files`, `certificates`: whether the files that the settings name can be used, and when certificates expire
- `admin_port`: who can use the admin port
- `addresses`: whether host names can be resolved, and whether the sidecar can listen on its addresses
- `connections`: tries the connections to the broker
- `host`: tries to listen on the sidecar's addresses, and to write to the journal's folder
"""
