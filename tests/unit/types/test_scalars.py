# SPDX-License-Identifier: Apache-2.0
"""Zones by name and by offset."""

import datetime as dt

import pytest

from changelane.errors import ConfigError
from changelane.types.scalars import parse_zone


@pytest.mark.parametrize(
    ("name", "hours"),
    [("UTC", 0), ("z", 0), ("+08:00", 8), ("-03:30", -3.5), ("Asia/Shanghai", 8)],
)
def test_a_zone_has_a_name_or_an_offset(name, hours):
    moment = dt.datetime(2024, 5, 24, tzinfo=parse_zone(name))
    assert moment.utcoffset() == dt.timedelta(hours=hours)


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "+24:00", "+8", "../etc/passwd"])
def test_what_is_no_zone_is_refused(name):
    with pytest.raises(ConfigError, match="unknown time zone"):
        parse_zone(name)
