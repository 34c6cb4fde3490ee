"""Valid settings: the required ones, and a set with every key that can be combined with the others."""

from typing import Any

Settings = dict[str, Any]

LEAST: Settings = {"listen": "127.0.0.1:9092", "upstream": "broker:9092"}

FULL: Settings = {
    "listen": "[::1]:9093",
    "upstream": "broker-2:9092",
    "admin": "127.0.0.1:9464",
    "admin_access": {
        "open": True,
        "metrics": "guarded",
        "token_file": "token",
        "certificate_file": "admin.pem",
        "key_file": "admin.key",
        "client_ca_file": "clients.pem",
    },
    "sidecar_id": "sidecar-1",
    "mode": "sidecar",
    "gateway": {"advertise": "broker-{node}.kafka.example", "first_port": 30_000, "strict_ports": True},
    "own_connection": {
        "address": "broker:9094",
        "sasl": {"mechanism": "SCRAM-SHA-512", "username": "sidecar", "password_file": "password"},
        "tls": {"ca_file": "ca.pem", "certificate_file": "own.pem", "key_file": "own.key", "server_name": "broker"},
    },
    "policies": {
        "group_max_size": {
            "mode": "audit",
            "limit": 250,
            "consumer_max_size": 300,
            "overrides": [{"group": "billing", "limit": 500}, {"pattern": "team-.*", "consumer_max_size": 20}],
            "error_code": 81,
        },
        "offset_metadata_max_bytes": {"mode": "audit", "limit": 4096},
    },
    "answers": {
        "enabled": False,
        "apis": ["ListGroups"],
        "exclusive": True,
        "client_host": "broker",
        "authorizer": "none",
        "rights_seconds": 5,
        "verify": 0.5,
    },
    "group_metadata_request": True,
    "offsets_log": {"read": False, "load_buffer_size": 65_536},
    "limits": {
        "largest_frame": 1024,
        "inspected_frame": 1024,
        "inspected_elements": 100,
        "held_frames": 1024,
        "connections": 1,
        "idle_seconds": 0,
        "stalled_seconds": 1,
        "reply_seconds": 1,
        "groups": 1,
        "offsets": 1,
        "rights": 1,
        "remembered_answers": 0,
        "flight_recorder": 0,
    },
    "io_uring": False,
    "journal": {
        "folder": "records",
        "topic": "sidecar-records",
        "contract_version": 2,
        "interval_seconds": 0.1,
        "segment_bytes": 1,
        "segment_seconds": 0.1,
        "total_bytes": 2,
        "retention_seconds": 1,
        "topic_batch_bytes": 1024,
        "topic_linger_seconds": 0,
        "topic_compression": "none",
    },
    "metrics": {"detail": "partition", "allow": ["team-.*"], "deny": ["test-.*"], "series": 1},
    "log": {"format": "json", "level": "debug"},
}
