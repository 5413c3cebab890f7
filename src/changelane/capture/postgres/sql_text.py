# SPDX-License-Identifier: Apache-2.0
"""Names, literals and log sequence numbers (LSN) as PostgreSQL writes them. Pure."""

import re
from typing import Final

from changelane.errors import ConfigError

_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_$]*", re.ASCII)
_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)
_MAX_NAME_LENGTH: Final = 63
TEXT_SETTINGS: Final = {
    "bytea_output": "hex",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
}
"""The settings with which the texts of values are exact, and such as Debezium reads them."""


def identifier(name: str) -> str:
    """Return a name as a quoted identifier, exact in case and characters.

    >>> print(identifier('a "b'))
    "a ""b"
    """
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str, name: str) -> str:
    """Return the quoted name of a table with its schema.

    >>> print(qualified("public", "Orders"))
    "public"."Orders"
    """
    return f"{identifier(schema)}.{identifier(name)}"


def literal(text: str) -> str:
    r"""Return a text as a literal, whatever ``standard_conforming_strings`` is.

    >>> print(literal("it's"), literal("a\\b"))
    'it''s' E'a\\b'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'" if "\\" in text else f"'{escaped}'"


def shown_name(schema: str, name: str) -> str:
    """Return a table's name as a pattern that matches this table only: quoted only where needed.

    >>> shown_name("public", "orders"), shown_name("public", "Old.Orders*")
    ('public.orders', 'public."Old.Orders*"')
    """
    return ".".join(
        part if _PLAIN_NAME.fullmatch(part) else identifier(part) for part in (schema, name)
    )


def lsn_of(text: str) -> int:
    """Return an LSN as a number of bytes since the beginning of the log.

    Raises:
        ValueError: The text is no LSN.

    >>> lsn_of("1/0") == 1 << 32
    True
    """
    parts = _LSN.fullmatch(text)
    if parts is None:
        raise ValueError("an LSN is two hexadecimal numbers with a slash between them")
    return int(parts[1], 16) << 32 | int(parts[2], 16)


def lsn_text(lsn: int) -> str:
    """Return an LSN as PostgreSQL writes it.

    >>> lsn_text((22 << 32) + 255)
    '16/FF'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def check_slot_name(name: str) -> None:
    """Check the name of a replication slot.

    Raises:
        ConfigError: PostgreSQL does not accept it.
    """
    if _SLOT_NAME.fullmatch(name) is None:
        raise ConfigError(
            f"the slot name {name!r} is invalid: a name has 1 to 63 lower-case letters, digits and "
            "underscores"
        )


def check_publication_name(name: str) -> None:
    """Check the name of a publication.

    Readers pass the names to ``pgoutput`` as a list of identifiers, which folds upper-case letters
    and splits at commas.

    Raises:
        ConfigError: A reader would ask for another name.
    """
    if _PLAIN_NAME.fullmatch(name) is None or len(name) > _MAX_NAME_LENGTH:
        raise ConfigError(
            f"the publication name {name!r} is invalid: a name has 1 to {_MAX_NAME_LENGTH} "
            "lower-case letters, digits and underscores, and begins with no digit"
        )
