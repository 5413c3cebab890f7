# SPDX-License-Identifier: Apache-2.0
"""Arrow's types as logical types, and its arrays as values (:data:`~.row_file.Row`)."""

import math
import uuid
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from changelane import types as t
from changelane.data_files.epoch_text import day_text, time_text, timestamp_writer
from changelane.data_files.row_file import malformed
from changelane.types.values import float_form

Values = Callable[[pa.Array], list[Any]]
"""Returns the values of an array; ``None`` is NULL."""

_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_INTEGERS: Final = {
    getattr(pa, str(kind))(): kind
    for kind in (
        t.Integer(bits, unsigned) for bits in (8, 16, 32, 64) for unsigned in (False, True)
    )
}
_PLAIN: Final[dict[Any, t.LogicalType]] = {
    **_INTEGERS,
    pa.bool_(): t.Boolean(),
    pa.string(): t.String(),
    pa.large_string(): t.String(),
    pa.string_view(): t.String(),
    pa.binary(): t.Bytes(),
    pa.large_binary(): t.Bytes(),
    pa.binary_view(): t.Bytes(),
    pa.null(): t.UNKNOWN,
}
"""Types whose values are those of Python."""
_MAX_DEPTH: Final = t.MOST_NESTED_TYPES
_ARROW_UUID: Final = "arrow.uuid"
_ARROW_JSON: Final = "arrow.json"


def reader_of(kind: pa.DataType, depth: int = 0) -> tuple[t.LogicalType, Values]:
    """Return the logical type of Arrow's type, and the function that reads its arrays.

    Raises:
        DecodeError: The type has no logical type, or is nested too deeply.
    """
    if depth > _MAX_DEPTH:
        raise malformed(f"a column has more than {_MAX_DEPTH} levels of nesting")
    if (logical_type := _PLAIN.get(kind)) is not None:
        return logical_type, _python_values
    if pa.types.is_decimal(kind):
        return t.Decimal(kind.precision, kind.scale), _python_values
    if pa.types.is_floating(kind):
        bits = 64 if kind == pa.float64() else 32
        return t.Float(bits), _doubles if bits == 64 else _singles
    if pa.types.is_fixed_size_binary(kind):
        return t.Bytes(), _python_values
    if pa.types.is_dictionary(kind):
        logical_type, values = reader_of(kind.value_type, depth + 1)
        return logical_type, lambda array: values(array.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return _extension_reader(kind, depth)
    if pa.types.is_nested(kind):
        return _nested_reader(kind, depth)
    return _time_reader(kind)


def _python_values(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _doubles(array: pa.Array) -> list[Any]:
    values = _python_values(array)
    if all(value is None or math.isfinite(value) for value in values):
        return values
    return [None if value is None else float_form(value) for value in values]


def _singles(array: pa.Array) -> list[Any]:
    """Return 32-bit floats with the fewest digits that distinguish them."""
    return [
        None if value is None else float_form(float(str(np.float32(value))))
        for value in array.to_pylist()
    ]


def _time_reader(kind: pa.DataType) -> tuple[t.LogicalType, Values]:
    if pa.types.is_date32(kind):
        return t.Date(), _mapped(pa.int32(), day_text)
    if pa.types.is_timestamp(kind):
        digits, is_instant = _DIGITS[kind.unit], kind.tz is not None
        logical_type = (t.InstantType if is_instant else t.Timestamp)(digits)
        return logical_type, _mapped(pa.int64(), timestamp_writer(digits, is_instant=is_instant))
    if pa.types.is_time(kind):
        digits = _DIGITS[kind.unit]
        width = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        return t.Time(digits), _mapped(width, lambda ticks: time_text(ticks, digits))
    if pa.types.is_duration(kind):
        if kind.unit == "ns":
            return t.Interval("ns"), _mapped(pa.int64(), int)
        factor = 10 ** (6 - _DIGITS[kind.unit])
        return t.Interval("us"), _mapped(pa.int64(), lambda ticks: ticks * factor)
    raise malformed(f"a column has the type {kind}, which is not supported")


def _mapped(width: pa.DataType, convert: Callable[[int], Any]) -> Values:
    def values(array: pa.Array) -> list[Any]:
        counts = array.view(width).to_pylist()
        return [None if count is None else convert(count) for count in counts]

    return values


def _extension_reader(kind: Any, depth: int) -> tuple[t.LogicalType, Values]:
    storage_type, storage_values = reader_of(kind.storage_type, depth + 1)

    def values(array: Any) -> list[Any]:
        return storage_values(array.storage)

    if kind.extension_name == _ARROW_UUID:
        return t.Uuid(), lambda array: [
            None if value is None else str(uuid.UUID(bytes=value)) for value in values(array)
        ]
    if kind.extension_name == _ARROW_JSON:
        return t.Json(), values
    return storage_type, values


def _nested_reader(kind: pa.DataType, depth: int) -> tuple[t.LogicalType, Values]:
    if pa.types.is_struct(kind):
        return _struct_reader(kind, depth)
    if pa.types.is_map(kind):
        key_type, keys = reader_of(kind.key_type, depth + 1)
        item_type, items = reader_of(kind.item_type, depth + 1)

        def pairs(array: Any, begin: int, end: int) -> list[Any]:
            key_values = keys(array.keys.slice(begin, end - begin))
            item_values = items(array.items.slice(begin, end - begin))
            return [list(pair) for pair in zip(key_values, item_values, strict=True)]

        return t.Map(key_type, item_type), _list_values(pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element_type, elements = reader_of(kind.value_type, depth + 1)
        return t.Array(element_type), _list_values(
            lambda array, begin, end: elements(array.values.slice(begin, end - begin))
        )
    if pa.types.is_fixed_size_list(kind):
        _, values = reader_of(pa.list_(kind.value_field), depth)
        element_type, _ = reader_of(kind.value_type, depth + 1)
        return t.Array(element_type), lambda array: values(array.cast(pa.list_(kind.value_field)))
    raise malformed(f"a column has the type {kind}, which is not supported")


def _list_values(flat_values: Callable[[Any, int, int], list[Any]]) -> Values:
    """Return the function that reads lists from the values of all of them."""

    def values(array: Any) -> list[Any]:
        offsets = array.offsets.to_pylist()
        begin = offsets[0]
        flat = flat_values(array, begin, offsets[-1])
        return [
            flat[offsets[index] - begin : offsets[index + 1] - begin] if is_valid else None
            for index, is_valid in enumerate(array.is_valid().to_pylist())
        ]

    return values


def _struct_reader(kind: Any, depth: int) -> tuple[t.LogicalType, Values]:
    names = [field.name for field in kind]
    if len(set(names)) != len(names):
        raise malformed("two fields of a column have one name")
    readers = [reader_of(field.type, depth + 1) for field in kind]
    logical_type = t.Record(
        tuple((name, field_type) for name, (field_type, _) in zip(names, readers, strict=True))
    )

    def values(array: Any) -> list[Any]:
        fields = [read(child) for (_, read), child in zip(readers, array.flatten(), strict=True)]
        records = zip(*fields, strict=True) if fields else ((),) * len(array)
        return [
            dict(zip(names, record, strict=True)) if is_valid else None
            for record, is_valid in zip(records, array.is_valid().to_pylist(), strict=True)
        ]

    return logical_type, values
