# SPDX-License-Identifier: Apache-2.0
"""``mask``: replaces values that must not be visible.

NULL stays NULL, and an unavailable value stays unavailable. A masked column has no default and no
source type. A hashed, tokenised or truncated column has the type text.
"""

import hashlib
import hmac
import string
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Final, Literal

import msgspec

from changelane.errors import TransformError
from changelane.reason_codes import ReasonCode
from changelane.schema import Column
from changelane.transforms.canonical_text import canonical_text
from changelane.transforms.transform import ColumnTransform, Convert, MovedColumn, Transform
from changelane.types import UNKNOWN, LogicalType, String, Value

MIN_SECRET_LENGTH: Final = 16
"""The minimum length of a secret, in characters."""


class Mask(ColumnTransform, frozen=True, kw_only=True, tag="mask", tag_field="type"):
    """Hides the values of columns. The columns of a key cannot be masked.

    Attributes:
        columns: The columns.
        method: ``hash``: 64 hexadecimal digits, the HMAC-SHA256 of the value's canonical text with
            the secret; equal values have equal hashes, whatever the format.
            ``tokenise``: a token with the value's length, digits for digits and letters for
            letters; equal values have equal tokens, and, rarely, different values too.
            ``truncate``: the first or last characters, never all of them.
            ``null``: NULL.
        secret: The key of ``hash`` and ``tokenise``, from the environment: ``${NAME}``.
        keep: The maximum number of characters that ``truncate`` keeps.
        side: Whether ``truncate`` keeps characters at the ``start`` or at the ``end``.
        when_missing: ``refuse`` rejects the events of a table without such a column: a renamed
            column would pass unmasked. ``pass`` accepts them, for masks of columns that only some
            tables have.
    """

    columns: tuple[str, ...]
    method: Literal["hash", "tokenise", "truncate", "null"]
    secret: str | None = None
    keep: Annotated[int, msgspec.Meta(ge=0)] | None = None
    side: Literal["start", "end"] = "start"
    when_missing: Literal["refuse", "pass"] = "refuse"

    def __post_init__(self) -> None:
        """Reject options that the method does not have, and missing options of the method."""
        if not self.columns:
            raise ValueError("mask needs columns")
        is_keyed = self.method in {"hash", "tokenise"}
        if is_keyed != (self.secret is not None):
            verb = "needs" if is_keyed else "takes no"
            raise ValueError(f"mask with the method {self.method} {verb} secret")
        if self.secret is not None and len(self.secret) < MIN_SECRET_LENGTH:
            raise ValueError(f"the secret of a mask needs at least {MIN_SECRET_LENGTH} characters")
        if (self.method == "truncate") != (self.keep is not None):
            verb = "needs" if self.method == "truncate" else "takes no"
            raise ValueError(f"mask with the method {self.method} {verb} keep")

    def __repr__(self) -> str:
        return f"Mask(tables={self.tables!r}, columns={self.columns!r}, method={self.method!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("tables", self.tables), ("columns", self.columns), ("method", self.method)]

    def names(self, columns: Iterable[str]) -> bool:
        return any(name in self.columns for name in columns)

    @property
    def named_columns(self) -> Iterable[str]:
        return self.columns

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset(self.columns if self.when_missing == "refuse" else ())

    def move(self, name: str, column: Column | None) -> MovedColumn | None:
        if name not in self.columns:
            return MovedColumn(name, column)
        kind = UNKNOWN if column is None else column.type
        masked, new_kind = None, None if self.method == "null" else String()
        if column is not None and new_kind is None:
            masked = Column(name, kind, column.source_type, nullable=True)
        elif column is not None:
            masked = Column(name, String(), nullable=column.nullable)
        return MovedColumn(
            name, masked, self._convert(kind), new_kind, keeps_key=False, is_masked=True
        )

    def _convert(self, kind: LogicalType) -> Convert:
        secret = (self.secret or "").encode("utf-8", "surrogatepass")
        match self.method:
            case "hash":
                return partial(_hash, secret, kind)
            case "tokenise":
                return partial(_token, secret, kind)
            case "truncate":
                return partial(_truncate, self.keep or 0, self.side == "end", kind)
            case "null":
                return _null


def _null(_: Value) -> None:
    return None


def _text(kind: LogicalType, value: Value) -> str:
    try:
        return canonical_text(kind, value)
    except Exception:  # noqa: BLE001 - any error text may quote the value
        raise TransformError("a value is not of its column's type", code=ReasonCode.MASK) from None


def _hash(secret: bytes, kind: LogicalType, value: Value) -> str:
    text = _text(kind, value).encode("utf-8", "surrogatepass")
    return hmac.digest(secret, text, "sha256").hex()


def _truncate(keep: int, is_end: bool, kind: LogicalType, value: Value) -> str:  # noqa: FBT001
    text = _text(kind, value)
    count = max(0, min(keep, len(text) - 1))
    return text[len(text) - count :] if is_end else text[:count]


_LOWER: Final = string.ascii_lowercase
_UPPER: Final = string.ascii_uppercase
_UNCHANGED: Final = frozenset(string.punctuation + " ")


def _token(secret: bytes, kind: LogicalType, value: Value) -> str:
    text = _text(kind, value)
    alphabets = [_alphabet(character) for character in text]
    if text and not any(alphabets):
        alphabets = [_LOWER] * len(text)  # a value of only punctuation is masked, too
    seed = hmac.digest(secret, b"token\0" + text.encode("utf-8", "surrogatepass"), "sha256")
    for attempt in range(256):
        chance = hashlib.shake_256(seed + bytes([attempt])).digest(4 * len(text))
        token = "".join(
            character
            if alphabet is None
            else alphabet[int.from_bytes(chance[4 * at : 4 * at + 4]) % len(alphabet)]
            for at, (character, alphabet) in enumerate(zip(text, alphabets, strict=True))
        )
        if token != text or not text:
            return token
    raise TransformError("a value has no token", code=ReasonCode.MASK)


def _alphabet(character: str) -> str | None:
    """Return the characters that may replace a character; ``None`` if it stays unchanged."""
    if character in _UNCHANGED:
        return None
    if character.isascii() and character.isdigit():
        return string.digits
    return _UPPER if character.isupper() else _LOWER


def masks_of(transforms: Sequence[Transform]) -> str:
    """Return an id of the masks in a list of transforms; empty if there are none.

    The id depends on all transforms, because a rename before a mask changes the masked column. It
    contains no secret.
    """
    if not any(isinstance(transform, Mask) for transform in transforms):
        return ""
    transform_values = [
        {**msgspec.to_builtins(transform, enc_hook=str), "secret": None} for transform in transforms
    ]
    return hashlib.sha256(msgspec.json.encode(transform_values)).hexdigest()[:16]


def fingerprint(raw: bytes | None, secret: bytes | None) -> bytes | None:
    """Return a replacement for the raw bytes of a message that may contain masked values.

    Equal messages have equal fingerprints; a fingerprint discloses nothing else.
    """
    if raw is None:
        return None
    if secret is None:
        return b"sha256:" + hashlib.sha256(raw).hexdigest().encode()
    return b"hmac-sha256:" + hmac.digest(secret, b"message\0" + raw, "sha256").hex().encode()
