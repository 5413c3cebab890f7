# SPDX-License-Identifier: Apache-2.0
"""Names and accounts as MySQL and MariaDB write them. Pure."""

import re
from typing import Final

_PLAIN_NAME: Final = re.compile(r"[0-9A-Za-z_$]*[A-Za-z_$][0-9A-Za-z_$]*", re.ASCII)


def identifier(name: str) -> str:
    """Return a name as a quoted identifier, whatever ``sql_mode`` is.

    >>> print(identifier("a `b"))
    `a ``b`
    """
    return "`" + name.replace("`", "``") + "`"


def qualified(database: str, name: str) -> str:
    """Return the quoted name of a table with its database."""
    return f"{identifier(database)}.{identifier(name)}"


def shown_name(database: str, name: str) -> str:
    """Return a table's name as a pattern that matches this table only: quoted only where needed.

    >>> shown_name("shop", "Old.Orders")
    'shop.`Old.Orders`'
    """
    return ".".join(
        part if _PLAIN_NAME.fullmatch(part) else identifier(part) for part in (database, name)
    )


def account(current_user: str) -> str:
    """Return the quoted account for ``CURRENT_USER()``; a user's name may contain ``@``.

    >>> print(account("a@b@%"))
    `a@b`@`%`
    """
    user, _, host = current_user.rpartition("@")
    return f"{identifier(user)}@{identifier(host)}"
