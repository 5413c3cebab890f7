# SPDX-License-Identifier: Apache-2.0
"""Values without a Python class: the unavailable value, instants, spatial values."""

import datetime as dt
import re
import zoneinfo
from typing import ClassVar, Final, final

import msgspec

from changelane.errors import ConfigError


@final
class Unavailable:
    """The value of a column that the producer knows and did not send."""

    _instance: ClassVar["Unavailable | None"] = None

    def __new__(cls) -> "Unavailable":
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "UNAVAILABLE"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNAVAILABLE"


UNAVAILABLE: Final = Unavailable()


class Instant(dt.datetime):
    """A point in time with the number of fraction digits that its producer wrote.

    Debezium writes ``2024-01-01T00:00:00.500000Z`` from the log and ``...00.5Z`` from a snapshot.
    Both instants are equal, and each is written with its own number of digits.
    """

    digits: int = 6

    @classmethod
    def of(cls, value: dt.datetime, digits: int) -> "Instant":
        """Return an aware datetime as an instant with a number of fraction digits."""
        instant = cls(
            value.year,
            value.month,
            value.day,
            value.hour,
            value.minute,
            value.second,
            value.microsecond,
            value.tzinfo,
        )
        instant.digits = digits
        return instant

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        return (_instant, (self.isoformat(), self.digits))

    def text(self) -> str:
        """Return ISO-8601 text with the instant's number of fraction digits; ``Z`` for UTC.

        >>> parse_instant("2024-01-01T00:00:00.50Z").text()
        '2024-01-01T00:00:00.50Z'
        """
        base = self.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
        if self.digits:
            base += f".{self.microsecond:06d}"[: self.digits + 1]
        offset = self.isoformat()[-6:]
        return base + ("Z" if offset == "+00:00" else offset)


def _instant(text: str, digits: int) -> Instant:
    instant = Instant.fromisoformat(text)
    instant.digits = digits
    return instant


_INSTANT: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(\d{1,6}))?(?:Z|[+-]\d\d:\d\d)", re.ASCII
)


def parse_instant(text: str) -> "Instant | str":
    """Return a text as an :class:`Instant`, or unchanged if Python cannot represent the time."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        return text
    try:
        instant = Instant.fromisoformat(text)
    except ValueError:
        return text
    instant.digits = match.end(1) - match.start(1)
    return instant


class Geometry(msgspec.Struct, frozen=True):
    """A spatial value: unchanged well-known binary, and its spatial reference id, if known."""

    wkb: bytes | None
    srid: int | None = None


_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)


def parse_zone(name: str) -> dt.tzinfo:
    """Return the zone of a name in the time zone database, or of an offset such as ``+08:00``.

    Raises:
        ConfigError: No zone has that name.
    """
    if name.upper() in {"UTC", "Z", "GMT"}:
        return dt.UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        span = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if span < dt.timedelta(hours=24):
            return dt.timezone(-span if offset[1] == "-" else span)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"unknown time zone {name!r}") from None


# Any value of an image. A union of all classes is too wide to help a type checker.
Value = object
