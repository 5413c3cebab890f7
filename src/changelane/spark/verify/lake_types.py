# SPDX-License-Identifier: Apache-2.0
"""The types of Spark, and their canonical texts if two lakes are compared. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from changelane.spark.verify.canonical_text import (
    DECIMAL,
    INTEGERS,
    CanonicalText,
    KeyText,
    RangeTexts,
    days_text,
    decimal_key_text,
    field_of,
    microseconds_text,
    scale_of,
)

_ARRAY: Final = "array<"
_CAST: Final = "CAST({} AS STRING)"
_TEXTS: Final[Mapping[str, str]] = {
    "boolean": _CAST,
    "string": "{}",
    "binary": "lower(hex({}))",
    "float": "CAST(java_method('java.lang.Float', 'floatToIntBits', {}) AS STRING)",
    "double": "CAST(java_method('java.lang.Double', 'doubleToLongBits', {}) AS STRING)",
    "date": "CAST(unix_date({}) AS STRING)",
    "timestamp": "CAST(unix_micros({}) AS STRING)",
    "timestamp_ntz": "CAST(unix_micros(CAST({} AS TIMESTAMP)) AS STRING)",
}
_KEY_TEXTS: Final[Mapping[str, KeyText]] = {
    "string": str,
    "boolean": lambda value: "true" if value else "false",
    "binary": lambda value: str(value.hex()),
    "date": days_text,
    "timestamp": microseconds_text,
    "timestamp_ntz": microseconds_text,
}


class LakeType(msgspec.Struct, frozen=True):
    """A type of Spark.

    Attributes:
        name: The type as Spark writes it, such as ``decimal(10,2)``.
    """

    name: str

    @property
    def shown(self) -> str:
        """The type for people."""
        return self.name

    @property
    def key_cast(self) -> str | None:
        """``None``: tables have no index."""
        return None

    @property
    def log_type(self) -> str | None:
        """``None``: a comparison of two lakes repairs nothing."""
        return None

    def text(self, lake: str) -> CanonicalText | None:
        """Return the canonical text of a column: equal types, or whole numbers of any size."""
        if _is_whole(self.name) and _is_whole(lake):
            return CanonicalText(_CAST, _CAST)
        text = _text_of(self.name)
        return None if text is None or self.name != lake else CanonicalText(text, text)

    def key_text(self, lake: str) -> KeyText | None:
        """Return the function for the values of a key."""
        if self.text(lake) is None:
            return None
        if lake.startswith(DECIMAL):
            return decimal_key_text(lake)
        return str if lake in INTEGERS else _KEY_TEXTS.get(lake)

    def range_texts(self, lake: str) -> RangeTexts | None:
        """Return what orders a key column."""
        if lake in INTEGERS and self.name in INTEGERS:
            return RangeTexts("{}", "bigint")
        is_equal = self.name == lake and (lake == "string" or lake.startswith(DECIMAL))
        return RangeTexts("{}", lake) if is_equal else None


def _is_whole(lake: str) -> bool:
    return lake in INTEGERS or (lake.startswith(DECIMAL) and scale_of(lake) == 0)


def _text_of(lake: str) -> str | None:
    if lake.startswith(DECIMAL) or lake in INTEGERS:
        return _CAST
    if lake.startswith(_ARRAY):
        inner = _text_of(lake.removeprefix(_ARRAY).removesuffix(">"))
        if inner is None:
            return None
        field = field_of("e", inner, "STRING")
        return f"CAST(size({{}}) AS STRING) || '/' || concat_ws('', transform({{}}, e -> {field}))"
    return _TEXTS.get(lake)
