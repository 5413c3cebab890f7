# SPDX-License-Identifier: Apache-2.0
"""Conditions of any number of parts.

Spark's planner and PySpark recurse into a condition. One that nests once per table of a batch, as
``a | b | c`` and a chain of ``where`` do, overflows the stack of the JVM with some hundred tables.
"""

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F


def any_of(conditions: Sequence[Column]) -> Column:
    """Return whether one of some conditions is true; the result is never NULL.

    Args:
        conditions: The conditions; NULL counts as false.
    """
    return F.coalesce(_any_of(conditions), F.lit(False)) if conditions else F.lit(False)


def _any_of(conditions: Sequence[Column]) -> Column:
    """Return the disjunction of conditions as a balanced tree."""
    if len(conditions) == 1:
        return conditions[0]
    middle = len(conditions) // 2
    return _any_of(conditions[:middle]) | _any_of(conditions[middle:])
