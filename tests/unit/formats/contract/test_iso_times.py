# SPDX-License-Identifier: Apache-2.0
"""Times with a fraction are read in parts, with the result of Python's own reader."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from changelane.formats.contract.iso_times import time_reader

SECONDS = "2024-10-27T02:30:59"  # in Berlin, this hour repeats


@pytest.mark.parametrize("zone", [dt.UTC, ZoneInfo("Europe/Berlin")], ids=str)
@pytest.mark.parametrize("offset", ["", "Z", "+05:30"])
def test_fractions(zone: dt.tzinfo, offset: str) -> None:
    read, read_first = time_reader(zone)
    moment = dt.datetime.fromisoformat(SECONDS + offset)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    whole = int(moment.timestamp()) * 10**9
    assert read(SECONDS + offset) == whole
    for digits in range(1, 10):
        text = "123456789"[:digits]
        assert read(f"{SECONDS}.{text}{offset}") == whole + int(text.ljust(9, "0"))
        for other in (None, SECONDS, f"{SECONDS}.{text}{offset}", f"{SECONDS}.123Z"):
            assert read_first(f"{SECONDS}.{text}{offset}", other) == read(
                f"{SECONDS}.{text}{offset}"
            )


@pytest.mark.parametrize(
    "text",
    [
        *(f"{SECONDS}.{fraction}" for fraction in ("", "Z", "1234567890", "12345678x", "+1234567")),
        *(f"{SECONDS}.{fraction}" for fraction in ("123_4567", "1234567ZZ", "\u0661" * 7)),
        *(f"{SECONDS}{fraction}" for fraction in (",1234567Z", "+01:00.123", ".12345678\u00b2")),
        "2024-13-01T00:00:00.123456Z",
        "2024-W10-1T00:00:00.123456",
        "20241027T023059.123.123456",
    ],
)
def test_texts_that_are_no_times(text: str) -> None:
    read, read_first = time_reader(dt.UTC)
    read(f"{SECONDS}.1234567Z")  # a known second
    others = [f"{SECONDS}.{'1' * digits}{zone}" for digits in range(1, 10) for zone in ("", "Z")]
    with pytest.raises(ValueError):  # noqa: PT011 - the reason is not used
        read(text)
    for other in (None, *others):
        for pair in ((text, other), (other, text)):
            with pytest.raises(ValueError):  # noqa: PT011 - as above
                read_first(*pair)
