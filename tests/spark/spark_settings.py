"""Settings that keep the tests on Spark short: for few rows, and one table format of two."""

from itertools import cycle, product
from typing import Any, Final

from lake_tables import LAKES

from changelane.spark.runtime.jars import LOG4J
from changelane.testing.conformance import EFFORT

_CHEAP: Final = {
    "spark.sql.shuffle.partitions": "2",
    # for few rows, the JIT, large pages and parallel collection cost more than they save; a plan is
    # short-lived, and in a small young generation each collection copies the plans in use again
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={LOG4J.as_uri()} "
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC "
        "-Xms1g -XX:NewSize=600m -XX:MetaspaceSize=384m"
    ),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # replanning after a stage takes longer than the stage
    "spark.sql.adaptive.enabled": "false",
    "spark.buffer.pageSize": "2m",
}
CHEAP: Final = _CHEAP if EFFORT == 1 else {}
"""With ``CHANGELANE_EFFORT=2`` Spark has the settings of users, such as adaptive execution."""


def lakes(usual: str) -> list[str]:
    """Return the table formats to run a long stream of many tables on.

    The merge rule is the same on all, and ``test_equality`` tests it on both. Other streams run on
    the usual one, and on both with ``CHANGELANE_EFFORT=2``; PySpark 3.5 has only Hudi.
    """
    return list(LAKES) if EFFORT > 1 or usual not in LAKES else [usual]


def lakes_with(*variants: Any) -> list[tuple[str, Any]]:
    """Return each variant of a test with one table format, in turn; with EFFORT=2 with all."""
    if EFFORT > 1:
        return list(product(LAKES, variants))
    return list(zip(cycle(LAKES), variants, strict=False))
