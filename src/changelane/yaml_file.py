# SPDX-License-Identifier: Apache-2.0
"""YAML files, and the environment variables that they name."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from changelane.errors import ConfigError

_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")


def read_yaml(path: str | Path) -> Any:
    """Return what a YAML file holds.

    Raises:
        ConfigError: It cannot be read, or is no YAML.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        return msgspec.yaml.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None


def filled(value: Any, environment: Mapping[str, str]) -> Any:
    """Return a value whose texts have variables for their ``${NAME}``.

    Raises:
        ConfigError: A variable is not set.
    """
    if isinstance(value, dict):
        return {key: filled(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environment:
            raise ConfigError(f"the environment variable {name} is not set")
        return environment[name]

    return _VARIABLE.sub(variable, value)
