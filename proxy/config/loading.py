"""Reads the settings from the flags, the environment and the file.

Flags take precedence over environment variables, and environment variables over the file. `errors` contains the texts
for invalid settings.
"""

import os
import stat
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from group_sidecar.proxy.config.errors import Settings, error_lines
from group_sidecar.proxy.config.model import ENVIRONMENT, Config
from group_sidecar.proxy.runtime.os_errors import reason_of


class ConfigError(Exception):
    """The settings are invalid. `lines`: one line for each fault, as text for the user."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


def load_config(file: Path | None = None, flags: Settings | None = None, *, only_regular: bool = False) -> Config:
    """Reads the settings from `flags` (nested as in the file), the environment and `file`, in this order of precedence.

    Args:
        file: the file with settings; None if there is none.
        flags: the settings of the command line.
        only_regular: whether to refuse a file that is not regular. To open or read a FIFO may block for ever.

    Raises:
        ConfigError: with a line for each fault, which names the source and the path of the key.
    """
    try:
        environment = EnvSettingsSource(Config)()
    except SettingsError as error:
        raise ConfigError([f"environment: {error}"]) from error
    in_file = _read_file(file, only_regular=only_regular) if file else {}
    settings = _merged(_merged(in_file, environment), flags or {})
    try:
        config = Config.model_validate(settings)
    except ValidationError as error:
        sources = {"flags": flags or {}, "environment": environment, str(file or ""): in_file}
        raise ConfigError([*error_lines(error, Config, sources), *_unknown_variables()]) from None
    if unknown_variables := _unknown_variables():
        raise ConfigError(unknown_variables)
    return config


def _unknown_variables() -> list[str]:
    """Returns a line for each environment variable with the sidecar's prefix that is no setting, such as a misspelt
    key.
    """
    known = {name.upper() for name in Config.model_fields}
    names = [name for name in os.environ if name.upper().startswith(ENVIRONMENT)]
    return [f"{name}: unknown key" for name in names if name.upper().split("__")[1] not in known]


class _Loader(yaml.SafeLoader):
    """Refuses a mapping that contains a key twice. YAML would silently use the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                twice = f"{key.value} is there twice"
                raise yaml.constructor.ConstructorError(problem=twice, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read_file(file: Path, *, only_regular: bool) -> Settings:
    try:
        settings = yaml.load((_read_regular(file) if only_regular else file.read_bytes()).decode(), _Loader)
    except OSError as error:
        raise ConfigError([f"{file}: {reason_of(error)}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{file}: is not UTF-8"]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError([f"{file}: is not YAML{where}: {getattr(error, 'problem', None) or error}"]) from error
    except ValueError as error:  # For example an impossible date.
        raise ConfigError([f"{file}: is not YAML: {error}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{file}: is nested too deeply"]) from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise ConfigError([f"{file}: must be a mapping of keys"])
    return settings


def _read_regular(file: Path) -> bytes:
    """Returns the content of a regular file, or of the regular file to which a link leads.

    Raises:
        OSError: the file cannot be read.
        ConfigError: the file is not regular.
    """
    # Without O_NONBLOCK, the opening of a FIFO waits for a writer.
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise ConfigError([f"{file}: is not a regular file, so it cannot be read again"])
        return opened.read()


def _merged(below: Settings, above: Settings) -> Settings:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged
