"""The surface of the configuration: each key with type, bounds and default, and the keys that a reload may change."""

from collections.abc import Iterator
from typing import Any

import trio
from structlog.testing import capture_logs

from group_sidecar.proxy.config.loading import load_config
from group_sidecar.proxy.config.model import ENVIRONMENT, Config
from group_sidecar.proxy.config.reload import ConfigReloader
from tests.surfaces.good_settings import FULL, LEAST
from tests.surfaces.texts import as_json, empty_folder, environment, without_prose

Json = dict[str, Any]


def configuration() -> str:
    """Returns the JSON schema of the settings without prose and class names, and then the path of each key."""
    schema = Config.model_json_schema()
    whole = _inlined(without_prose(schema), schema.get("$defs", {}))
    keys = list(_keys(whole))
    variables = {key: ENVIRONMENT + key.upper().replace(".", "__") for key in keys if "[]" not in key}
    return as_json({"keys": keys, "variables": variables, "schema": whole})


def reloadable_keys() -> str:
    """Returns the result of a reload if every key has changed, and if only the policies have changed."""
    with environment({}), empty_folder():
        least, full = load_config(flags=LEAST), load_config(flags=FULL)
        policies = load_config(flags={**LEAST, "policies": FULL["policies"]})
    lines = []
    with capture_logs():
        for title, config in (("every key", full), ("policies alone", policies), ("nothing", least)):
            applied, said = trio.run(_reloaded, least, config)
            lines += [f"== {title}: {'applied' if applied else 'not applied'}", *said]
        missing = trio.run(ConfigReloader(least, None, lambda _: None).reload)
    lines += ["== without a file", *missing.lines]
    return "\n".join(lines) + "\n"


async def _reloaded(old: Config, new: Config) -> tuple[bool, list[str]]:
    outcome = await ConfigReloader(old, lambda: new, lambda _: None).reload()
    return outcome.applied, outcome.lines


def _inlined(schema: Any, definitions: Json) -> Any:
    """Returns a schema with its references resolved, because class names are not part of the surface."""
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _inlined({**without_prose(definitions[name]), **beside}, definitions)
    return {key: _inlined(value, definitions) for key, value in schema.items() if key != "$defs"}


def _keys(schema: Json, above: str = "") -> Iterator[str]:
    """Yields the paths of all keys. `[]` stands for each item of a list."""
    for name, declared in schema.get("properties", {}).items():
        yield above + name
        for variant in (declared, *declared.get("anyOf", ())):
            yield from _keys(variant, f"{above}{name}.")
            yield from _keys(variant.get("items", {}), f"{above}{name}[].")
