# SPDX-License-Identifier: Apache-2.0
"""Topics that the user of a producer chooses, for all tables or one by one."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from changelane.errors import ConfigError, EncodeError
from changelane.schema import TableId, named

_PARTS: Final = re.compile(r"\{(\w*)\}")
_NAMES: Final = frozenset({"database", "schema", "table"})


def check_template(profile: str, option: str, template: str | None) -> None:
    """Refuse a template with a part that no table has.

    Raises:
        ConfigError: That is so.
    """
    for part in _PARTS.findall(template or ""):
        if part not in _NAMES:
            msg = (
                f"profile {profile}: option {option}: {{{part}}} is none of "
                "{database}, {schema} and {table}"
            )
            raise ConfigError(msg)


def topic_of(
    table: TableId, topics: Mapping[str, str], template: str | None, profile: str
) -> str | None:
    """Return the topic of a table: its own, or the template with the parts of its name.

    Names go in as they are, so that two tables never share a topic by chance: one that no topic
    can have is refused later, and needs a topic of its own.

    Raises:
        EncodeError: The table lacks a part of the template.
    """
    found = named(topics, table)
    if found is None and template is not None:
        found = _filled(template, table, profile)
    return found


@lru_cache(maxsize=4096)
def _filled(template: str, table: TableId, profile: str) -> str:
    parts = {"database": table.database, "schema": table.schema, "table": table.name}

    def fill(found: re.Match[str]) -> str:
        part = parts[found.group(1)]
        if not part:
            raise EncodeError(
                f"table {str(table) or '(unknown)'} has no {found.group(1)} for its topic: see "
                f"the options topic and topics of profile {profile}"
            )
        return part

    return _PARTS.sub(fill, template)
