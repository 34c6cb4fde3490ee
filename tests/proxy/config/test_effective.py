"""The settings in force as plain values: complete, nested as in the file, and without secrets."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from group_sidecar.proxy.admin.config_model import Config as Model
from group_sidecar.proxy.config.effective import effective_settings
from group_sidecar.proxy.config.model import Config
from tests.surfaces.good_settings import FULL, LEAST

SECRET = "not-to-be-shown"
TLS = {"certificate_file": "a.pem", "key_file": "a.key"}


def effective(**settings: Any) -> dict[str, Any]:
    return effective_settings(Config.model_validate({**LEAST, **settings}))


def test_result_is_accepted_as_settings() -> None:
    """The result of settings without secrets is JSON, means the same settings, and has the values of the model."""
    for settings in (LEAST, FULL):
        config = Config.model_validate(settings)
        result = json.loads(json.dumps(effective_settings(config)))
        # A section of a list refuses null where the key may only be left out.
        result["policies"] = settings.get("policies", {})
        assert Config.model_validate(result) == config
        assert Model.model_validate(result, extra="forbid").model_dump() == result


def test_every_key_is_there() -> None:
    """Each section contains all its keys, set or not."""
    result = effective_settings(Config.model_validate(FULL))

    def compare(value: Any, section: BaseModel) -> None:
        assert list(value) == list(type(section).model_fields)
        for name in value:
            if isinstance(inner := getattr(section, name), BaseModel):
                compare(value[name], inner)

    compare(result, Config.model_validate(FULL))


def test_secrets_are_redacted(tmp_path: Path) -> None:
    """A secret that is set is three asterisks, and files of secrets are only named."""
    file = tmp_path / "password"
    file.write_text(SECRET)
    user = {"mechanism": "PLAIN", "username": "sidecar"}
    result = effective(
        admin_access={"token": SECRET}, own_connection={"sasl": {**user, "password": SECRET}, "tls": {"ca_file": "ca"}}
    )
    assert (result["admin_access"]["token"], result["admin_access"]["token_file"]) == ("***", None)
    assert result["own_connection"]["sasl"]["password"] == "***"
    named = effective(own_connection={"sasl": {**user, "password_file": str(file)}})["own_connection"]["sasl"]
    assert (named["password"], named["password_file"]) == (None, str(file))
    assert SECRET not in json.dumps([result, named])


def test_own_connection_shows_tls_of_listener() -> None:
    """Without `own_connection.tls`, the TLS of the first listener is in force."""
    listener = {"name": "A", "listen": "127.0.0.1:1", "upstream": "broker:1", "upstream_tls": {"ca_file": "ca.pem"}}
    settings = {"listeners": [{**listener, "tls": TLS}], "sidecar_id": "a"}
    result = effective_settings(Config.model_validate(settings))
    assert result["listeners"][0]["tls"]["key_file"] == "a.key"
    assert result["own_connection"]["tls"]["ca_file"] == "ca.pem"
