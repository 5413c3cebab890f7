# SPDX-License-Identifier: Apache-2.0
"""Topics by the options of a profile, for all tables or for single tables."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from changelane.errors import ConfigError, EncodeError
from changelane.schema import TableId, option_for_table

_PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")
_NAMES: Final = frozenset({"database", "schema", "table"})


def check_template(profile: str, option: str, template: str | None) -> None:
    """Reject a template with an unknown placeholder.

    Raises:
        ConfigError: The template has an unknown placeholder.
    """
    for part in _PLACEHOLDER.findall(template or ""):
        if part not in _NAMES:
            msg = (
                f"profile {profile}: option {option}: {{{part}}} is not one of "
                "{database}, {schema} and {table}"
            )
            raise ConfigError(msg)


def topic_of(
    table: TableId, topics: Mapping[str, str], template: str | None, profile: str
) -> str | None:
    """Return the topic of a table: its own, or the template with the parts of its name.

    The parts are not sanitised, so that two tables never get one topic by chance. A name that Kafka
    does not allow is rejected later; such a table needs a topic of its own.

    Raises:
        EncodeError: The table lacks a part of the template.
    """
    topic = option_for_table(topics, table)
    if topic is None and template is not None:
        topic = _fill_template(template, table, profile)
    return topic


@lru_cache(maxsize=4096)
def _fill_template(template: str, table: TableId, profile: str) -> str:
    parts = {"database": table.database, "schema": table.schema, "table": table.name}

    def fill(match: re.Match[str]) -> str:
        part = parts[match.group(1)]
        if not part:
            raise EncodeError(
                f"table {str(table) or '(unknown)'} has no {match.group(1)} for its topic: see "
                f"the options topic and topics of profile {profile}"
            )
        return part

    return _PLACEHOLDER.sub(fill, template)
