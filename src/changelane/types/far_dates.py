# SPDX-License-Identifier: Apache-2.0
"""The text of dates beyond Python's calendar: proleptic Gregorian, with astronomical years."""


def date_text(days: int) -> str:
    """Return the date of a count of days since 1970-01-01.

    >>> date_text(19782), date_text(-735160), date_text(106751991)
    ('2024-02-29', '-0043-03-15', '+294247-01-10')
    """
    year, month, day = _civil(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _civil(days: int) -> tuple[int, int, int]:
    # http://howardhinnant.github.io/date_algorithms.html#civil_from_days
    shifted = days + 719_468
    era, day_of_era = divmod(shifted, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    month = month_index + 3 if month_index < 10 else month_index - 9
    year = year_of_era + era * 400 + (month <= 2)
    return year, month, day_of_year - (153 * month_index + 2) // 5 + 1
