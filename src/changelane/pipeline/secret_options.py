# SPDX-License-Identifier: Apache-2.0
"""Options that must come from the environment, because they are secrets."""

import re
from collections.abc import Mapping
from typing import Final

from changelane.errors import ConfigError

SECRETS: Final[dict[str, dict[str, str]]] = {
    "datahub": {
        "access_id": "DATAHUB_ACCESS_ID",
        "access_key": "DATAHUB_ACCESS_KEY",
        "security_token": "DATAHUB_SECURITY_TOKEN",
    },
    "postgres": {"password": "PGPASSWORD"},
    "mysql": {"password": "MYSQL_PASSWORD"},
    "mariadb": {"password": "MYSQL_PASSWORD"},
}
"""Type of a source or sink -> option -> the usual variable of its value."""

_VARIABLE: Final = re.compile(r"\$\{[^}]+\}")


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
