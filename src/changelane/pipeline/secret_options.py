# SPDX-License-Identifier: Apache-2.0
"""Options that must come from the environment, because they are secrets."""

import re
from collections.abc import Mapping
from typing import Final

from changelane.errors import ConfigError
from changelane.formats.contract.options import SECRET_OPTIONS

SECRETS: Final[dict[str, dict[str, str]]] = {
    "datahub": {
        "access_id": "DATAHUB_ACCESS_ID",
        "access_key": "DATAHUB_ACCESS_KEY",
        "security_token": "DATAHUB_SECURITY_TOKEN",
    },
    "postgres": {"password": "PGPASSWORD", "connect_auth": "CONNECT_AUTH"},
    "mysql": {"password": "MYSQL_PASSWORD", "connect_auth": "CONNECT_AUTH"},
    "mariadb": {"password": "MYSQL_PASSWORD", "connect_auth": "CONNECT_AUTH"},
    "sqlserver": {"password": "SQLSERVER_PASSWORD"},
    "oracle": {"password": "ORACLE_PASSWORD"},
}
"""Type of a source or sink -> option -> the usual variable of its value."""

_SECRET_NAME: Final = re.compile(r"passw|passphrase|secret|token|credential|jaas", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"\$\{[^}]+\}")


def is_secret_name(name: str) -> bool:
    """Whether the value of a connector's property is a secret, by its name."""
    return _SECRET_NAME.search(name) is not None


def is_from_environment(value: object) -> bool:
    """Whether a secret is written as a variable of the environment."""
    return _VARIABLE.search(str(value)) is not None


def check_secrets(raw: object, section: str = "sink") -> None:
    """Reject secrets in a pipeline's file.

    Args:
        raw: The source or sink as written in the file.
        section: ``source`` or ``sink``.

    Raises:
        ConfigError: The file contains a secret; the error does not quote it.
    """
    if not isinstance(raw, Mapping):
        return
    for name, variable in SECRETS.get(str(raw.get("type")), {}).items():
        secret = raw.get(name)
        if secret is not None and _VARIABLE.fullmatch(str(secret)) is None:
            msg = f"read {section}.{name} from the environment: `{name}: ${{{variable}}}`"
            raise ConfigError(msg)
    format_options = raw.get("format_options")
    for name, value in format_options.items() if isinstance(format_options, Mapping) else ():
        if name in SECRET_OPTIONS and not is_from_environment(value):
            path = f"{section}.format_options.{name}"
            raise ConfigError(f"read {path} from the environment: `{name}: ${{{name.upper()}}}`")
    properties = raw.get("debezium")
    for name, value in properties.items() if isinstance(properties, Mapping) else ():
        if is_secret_name(str(name)) and _VARIABLE.fullmatch(str(value)) is None:
            variable = re.sub(r"\W", "_", str(name)).upper()
            msg = f"read {section}.debezium.{name} from the environment: `{name}: ${{{variable}}}`"
            raise ConfigError(msg)
