# SPDX-License-Identifier: Apache-2.0
"""``route``: renames tables, merges shards into one table, and sets the topics of messages."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

import msgspec

from changelane.errors import TransformError
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.transforms.transform import Transform

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_PARTS: Final = ("database", "schema", "table")
_ESCAPED: Final = re.compile(r"\\[^A-Za-z0-9]", re.ASCII)
_META: Final = re.compile(r"[.^$*+?{}\[\]\\|()]")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Route(Transform, frozen=True, kw_only=True, tag="route", tag_field="type"):
    r"""Renames tables with a full name that matches a regular expression.

    Templates may contain ``{1}`` or ``{name}`` for a group of the expression, and ``{database}``,
    ``{schema}``, ``{table}`` for the parts of the old name. In ``topic`` they are parts of the new
    name, and groups are not available.

    Attributes:
        pattern: A regular expression that matches the complete full name: ``shop\.orders_(\d+)``.
        database: The new database; the default is the old one.
        schema: The new schema; the default is the old one.
        table: The new name; the default is the old one.
        topic: The topic of the table's messages, for sinks with topics.
        shards: If several tables can get one name: ``refuse`` rejects that; ``key`` adds the old
            full name as a column of the table and of its key; ``apart`` declares that the keys of
            the shards are never equal.
        shard_column: The name of the column that ``shards: key`` adds.
    """

    pattern: str
    database: str | None = None
    schema: str | None = None
    table: str | None = None
    topic: str | None = None
    shards: Literal["refuse", "key", "apart"] = "refuse"
    shard_column: str = "shard"

    def __post_init__(self) -> None:
        """Reject an invalid expression or template, and a merge of tables without ``shards``."""
        groups = _groups(self.pattern)
        templates = [text for text in self._templates if text is not None]
        if not templates and self.topic is None:
            raise ValueError("route needs a database, schema, table or topic")
        for text, names in [(template, groups | set(_PARTS)) for template in templates]:
            _check_template(text, names)
        _check_template(self.topic or "x", set(_PARTS))
        if not self.shard_column:
            raise ValueError("shard_column is empty")
        if self.shards == "refuse" and not self._keeps_tables_distinct:
            raise ValueError(
                "route may give several tables one name: set `shards: key` (the old name becomes "
                "part of the key), or `shards: apart` if their keys are never equal. If the "
                "pattern is one name, write a backslash before each dot"
            )

    @property
    def _templates(self) -> tuple[str | None, str | None, str | None]:
        return self.database, self.schema, self.table

    @property
    def _keeps_tables_distinct(self) -> bool:
        """Whether different tables always get different names."""
        if not _META.search(_ESCAPED.sub("", self.pattern)):
            return True  # the pattern matches one name only
        references: set[str] = set()
        for part, text in zip(_PARTS, self._templates, strict=True):
            placeholders = _PLACEHOLDER.findall(f"{{{part}}}" if text is None else text)
            if len(placeholders) == 1:
                references.update(placeholders)
        return references.issuperset(_PARTS)

    @property
    def is_merging(self) -> bool:
        """Whether several tables may become one."""
        return self.shards != "refuse"

    def covers(self, table: TableId) -> bool | None:
        if table.name is None:
            return None
        return _compiled(self.pattern).fullmatch(str(table)) is not None

    def destination(self, table: TableId) -> TableId:
        match = _compiled(self.pattern).fullmatch(str(table))
        if table.name is None or match is None:
            return table
        old = dict(zip(_PARTS, msgspec.structs.astuple(table), strict=True))

        def value(placeholder: str) -> str:
            if placeholder in old:
                return old[placeholder] or ""
            return match.group(int(placeholder) if placeholder.isdigit() else placeholder) or ""

        parts = (
            old[part] if text is None else _template_text(text, value) or None
            for part, text in zip(_PARTS, self._templates, strict=True)
        )
        new = TableId(*parts)
        if new.name is None:
            raise TransformError("a table would have an empty name", code=ReasonCode.ROUTE)
        return table if new == table else new

    def topic_of(self, table: TableId) -> str | None:
        """Return the topic of a table's messages, from its new name.

        Raises:
            TransformError: The result is not a valid topic name.
        """
        if self.topic is None:
            return None
        parts = dict(zip(_PARTS, msgspec.structs.astuple(table), strict=True))
        topic = _template_text(self.topic, lambda placeholder: parts[placeholder] or "")
        if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
            raise TransformError("route gives a topic an invalid name", code=ReasonCode.ROUTE)
        return topic


def shard_name(table: TableId) -> str:
    """Return the old name of a shard: its full name, or its parts as JSON if one contains a dot."""
    parts = msgspec.structs.astuple(table)
    if any(part and (set(".[") & set(part)) for part in parts):
        return msgspec.json.encode(parts).decode()
    return str(table)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern of route is not a regular expression: {error}") from None


def _groups(pattern: str) -> set[str]:
    compiled = _compiled(pattern)
    if set(compiled.groupindex) & set(_PARTS):
        raise ValueError("a group of route must not have the name database, schema or table")
    return set(compiled.groupindex) | {str(number) for number in range(1, compiled.groups + 1)}


def _check_template(text: str, names: set[str]) -> None:
    for placeholder in _PLACEHOLDER.findall(text):
        if placeholder not in names:
            raise ValueError(f"route: {{{placeholder}}} is not one of {', '.join(sorted(names))}")
    if not text:
        raise ValueError("a template of route is empty")


def _template_text(text: str, value: Callable[[str], str]) -> str:
    return _PLACEHOLDER.sub(lambda placeholder: value(placeholder[1]), text)
