"""Wrong command lines of `group-sidecar groups`, with their variables, and of the fleet job."""

_NOBODY = "127.0.0.1:1"
_TWO = {"GROUP_SIDECAR_BOOTSTRAP": _NOBODY, "GROUP_SIDECAR_ADMIN": _NOBODY}
_SIDECAR = ("--sidecar", _NOBODY)
_BROKER = ("--bootstrap", _NOBODY)

USAGE: list[tuple[dict[str, str], tuple[str, ...]]] = [
    *(
        ({}, arguments)
        for arguments in (
            ("walk",),
            ("groups", "walk"),
            ("groups", "list"),
            ("groups", "list", "--bootstrap", "here"),
            ("groups", "list", "--sidecar", "here"),
            ("groups", "list", "--sidecar", "ftp://a:1"),
            ("groups", "list", "--sidecar", "http://user@a:1"),
            ("groups", "list", "--sidecar", "http://a:1?x"),
            ("groups", "list", "--sidecar", "http://a:0"),
            ("groups", "list", "--sidecar", "a:65536"),
            ("groups", "list", *_BROKER, *_SIDECAR),
            ("groups", "list", *_BROKER, "--all-sidecars", "empty"),
            ("groups", "list", "--all-sidecars", "absent"),
            ("groups", "list", "--all-sidecars", "empty"),
            ("groups", "list", "--all-sidecars", "wrong"),
            ("groups", "list", "--all-sidecars", "binary"),
            ("groups", "list", *_SIDECAR, "--token-file", "absent"),
            ("groups", "list", *_SIDECAR, "--token-file", "binary"),
            ("groups", "list", *_SIDECAR, "--ca-file", "empty"),
            ("groups", "list", "--sidecar", "https://127.0.0.1:1", "--ca-file", "empty"),
            ("groups", "list", "--sidecar", "https://127.0.0.1:1", "--ca-file", "absent"),
            ("groups", "list", *_SIDECAR, "--timeout", "0"),
            ("groups", "list", *_SIDECAR, "--timeout", "nan"),
            ("groups", "list", *_SIDECAR, "--timeout", "long"),
            ("groups", "list", *_SIDECAR, "--state", "Gone"),
            ("groups", "list", *_SIDECAR, "--type", "old"),
            ("groups", "list", *_SIDECAR, "--tokenfile", "x"),
            ("groups", "list", *_BROKER, "--verbose"),
            ("groups", "list", *_SIDECAR),
            ("groups", "list", *_BROKER),
            ("groups", "list", *_SIDECAR, "--json"),
            ("groups", "describe", *_SIDECAR),
            ("groups", "describe", "g" * 40_000, *_SIDECAR),
            ("groups", "members", *_BROKER),
            ("groups", "offsets", "g", "h", *_BROKER),
            ("groups", "timeline", "g", *_BROKER),
            ("groups", "timeline", "g", *_SIDECAR, "--since", "1"),
            ("groups", "timeline", "g", *_SIDECAR, "--since", "0s"),
            ("groups", "timeline", "g", *_SIDECAR, "--since", "4000d"),
            ("groups", "why", "g", *_BROKER),
            ("groups", "why", "g", *_SIDECAR, "--since", "an hour"),
            ("groups", "top", *_BROKER),
            ("groups", "top", *_SIDECAR, "--sort", "size"),
            ("groups", "top", *_SIDECAR, "--interval", "0.05"),
            ("groups", "top", *_SIDECAR, "--interval", "nan"),
        )
    ),
    (_TWO, ("groups", "list")),
    ({"GROUP_SIDECAR_BOOTSTRAP": "here"}, ("groups", "list")),
    ({"GROUP_SIDECAR_ADMIN": f"{_NOBODY} here"}, ("groups", "list")),
    ({"GROUP_SIDECAR_ALL_SIDECARS": "absent"}, ("groups", "list")),
    ({"GROUP_SIDECAR_TOKEN": "é"}, ("groups", "list", *_SIDECAR)),
    ({"GROUP_SIDECAR_TOKEN_FILE": "absent"}, ("groups", "list", *_SIDECAR)),
    ({"GROUP_SIDECAR_CA_FILE": "absent"}, ("groups", "list", "--sidecar", "https://127.0.0.1:1")),
]
"""Variables and arguments. No process listens on port 1."""

_RUN = ("run", "--input", "journals")
_REPLAY = ("replay", "--input", "journals", "--output", "tables")
_REPORT = ("report", "--tables", "journals", "--output", "report.html")

FLEET: list[tuple[str, ...]] = [
    (),
    ("walk",),
    ("run",),
    _RUN,
    (*_RUN, "--output", "file"),
    (*_RUN, "--stream"),
    (*_RUN, "--stream", "--output", "tables", "--json"),
    (*_RUN, "--stream", "--output", "tables", "--show", "lag"),
    (*_RUN, "--trigger", "5s"),
    (*_RUN, "--stream", "--output", "tables", "--trigger", "soon"),
    (*_RUN, "--window", "7m"),
    (*_RUN, "--window", "0m"),
    (*_RUN, "--window", "wide"),
    (*_RUN, "--retention", "5h"),
    (*_RUN, "--retention", "long"),
    (*_RUN, "--limit", "0"),
    (*_RUN, "--limit", "many"),
    (*_RUN, "--show", "members"),
    (*_RUN, "--textfile", "absent/fleet.prom"),
    (*_RUN, "--jars", "absent.jar"),
    (*_RUN, "--command-config", "absent"),
    (*_RUN, "--outptu", "tables"),
    ("run", "--input", "absent"),
    ("run", "--input", "kafka://"),
    ("run", "--input", "kafka://broker:9092"),
    ("run", "--input", "kafka://broker/topic"),
    ("run", "--input", "kafka://broker:9092/topic"),
    ("replay", "--input", "journals"),
    _REPLAY,
    (*_REPLAY, "--from", "2025-01-31", "--to", "2025-01-31"),
    (*_REPLAY, "--from", "yesterday", "--to", "2025-01-31"),
    (*_REPLAY, "--from", "2025-01-31T09:00Z", "--to", "2025-01-31T10:00Z"),
    ("report", "--output", "report.html"),
    ("report", "--tables", "absent", "--output", "report.html"),
    (*_REPORT, "--from", "x"),
    _REPORT,
]
"""Arguments of the fleet job. Five of them are valid."""
