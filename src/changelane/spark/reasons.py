# SPDX-License-Identifier: Apache-2.0
"""Why something failed, in words that quote no value of a row."""

import re
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

FAILURES: Final = (PySparkException, Py4JJavaError)
"""How a statement fails: by an error of Spark's, or by one of the code of a table format or of a
catalog, such as Iceberg's ``RuntimeMetaException``, which PySpark has no class for."""

_VALUES: Final = (
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\""), "'...'"),
    # CAST_OVERFLOW, NUMERIC_VALUE_OUT_OF_RANGE, and Delta's constraints
    (re.compile(r"The value \S+"), "The value ..."),
    (re.compile(r"(\[NUMERIC_VALUE_OUT_OF_RANGE[^\]]*\]) \S+"), r"\1 ..."),
    (re.compile(r"(violated by row with values:)(\s*- [^\n]*)+"), r"\1 ..."),
)


def reason_of(error: Exception) -> str:
    """Return why a statement or a stream failed, without values that Spark's words may quote."""
    text = str(error).partition("=== Streaming Query ===")[0].strip()
    text = text.partition("\n\tat ")[0]
    for values, instead in _VALUES:
        text = values.sub(instead, text)
    return text or type(error).__name__
