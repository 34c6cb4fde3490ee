"""Paths in the settings that no file can have."""

import pytest
from pydantic import TypeAdapter, ValidationError

from group_sidecar.proxy.config.paths import ConfiguredPath
from tests.proxy.checks.checked_settings import settings

PATH: TypeAdapter[ConfiguredPath] = TypeAdapter(ConfiguredPath)
UNUSABLE = "contains a line end, a null character or a lone surrogate"


@pytest.mark.parametrize("path", ["/a\0", "\ud800", "a\nb", "a\r"])
def test_unusable_path_is_refused(path: str) -> None:
    """A path that no file can have is an invalid setting, instead of an exception of check-config (found by the
    fuzzer).
    """
    with pytest.raises(ValidationError, match=UNUSABLE):
        PATH.validate_python(path)
    with pytest.raises(ValidationError, match=UNUSABLE):
        settings(journal={"folder": path})
    with pytest.raises(ValidationError, match=UNUSABLE):
        settings(admin="127.0.0.1:1", admin_access={"token_file": path})
    with pytest.raises(ValidationError, match=UNUSABLE):
        settings(own_connection={"tls": {"ca_file": path}})


@pytest.mark.parametrize("path", ["/etc/kafka/ca.pem", "relative file", "/tmp/\u00e9\t\U0001f600"])
def test_other_paths_are_kept(path: str) -> None:
    """Spaces, tabs and any letters stay as they are."""
    assert str(PATH.validate_python(path)) == path
