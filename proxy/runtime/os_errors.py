"""The reasons of errors of the operating system, as text for the log and for users."""


def reason_of(error: OSError) -> str:
    """Returns in lower case why a call of the operating system failed, for instance "connection refused"."""
    return (error.strerror or str(error)).lower()
