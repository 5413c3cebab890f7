# SPDX-License-Identifier: Apache-2.0
"""The keys of event rows: canonical text of an image's values in the key columns."""

from changelane.apply import key_bytes, known_values
from changelane.errors import DecodeError
from changelane.event import Image
from changelane.reason_codes import ReasonCode
from changelane.types import UNAVAILABLE


def key_of(columns: tuple[str, ...] | None, image: Image) -> str | None:
    """Return the canonical key of an image, ``None`` for a table without a key.

    Raises:
        DecodeError: The image lacks a column of the key.
    """
    if columns is None:
        return None
    if len(columns) == 1:
        value = image.get(columns[0], UNAVAILABLE)
        if type(value) is int:
            return f"[{value}]"
    values = {name: image.get(name, UNAVAILABLE) for name in columns}
    if UNAVAILABLE in values.values():
        raise DecodeError("a column of the key is not in the image", code=ReasonCode.NO_KEY)
    return key_bytes(values).decode()


def knows_key(columns: tuple[str, ...] | None, image: Image) -> bool:
    """Return whether an image has a value of each key column."""
    return columns is not None and not any(
        image.get(name, UNAVAILABLE) is UNAVAILABLE for name in columns
    )


def changed_keys(
    columns: tuple[str, ...] | None, before: Image, after: Image
) -> tuple[str | None, str | None, Image]:
    """Return the key after an update, the key before it if it changed, and the after image.

    A key column that the after image lacks did not change. After a key change the image takes
    missing columns from the before image (docs/merge-rule.md, Key changes that lack columns).
    """
    if columns is None:
        return None, None, after
    lacking = [
        name for name in columns if after.get(name, UNAVAILABLE) is UNAVAILABLE and name in before
    ]
    if lacking:
        after = {**after, **{name: before[name] for name in lacking}}
    key = key_of(columns, after)
    if any(before.get(name, UNAVAILABLE) is UNAVAILABLE for name in columns):
        return key, None, after
    old = key_of(columns, before)
    if old == key:
        return key, None, after
    after_values = known_values(after) or {}
    before_values = {
        name: v for name, v in (known_values(before) or {}).items() if name not in after_values
    }
    return key, old, {**after, **before_values} if before_values else after
