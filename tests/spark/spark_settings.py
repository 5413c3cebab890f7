"""What keeps the tests on Spark short: settings for few rows, and one lake of two."""

from typing import Final

from lake_tables import LAKES

from changelane.spark.runtime.jars import LOG4J
from changelane.testing.conformance import EFFORT

CHEAP: Final = {
    "spark.sql.shuffle.partitions": "2",
    # compiling costs more than it saves, large pages and a collector of many threads, too
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={LOG4J.as_uri()} "
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"
    ),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # planning again after each stage costs more than the stage
    "spark.sql.adaptive.enabled": "false",
    "spark.buffer.pageSize": "2m",
}


def lakes(usual: str) -> list[str]:
    """Return the lakes that a long stream of many tables runs on.

    The rule is the same on all lakes, and ``test_equality`` shows it on both. Other streams take
    the usual one, and both with ``CHANGELANE_EFFORT=2``; on PySpark 3.5 there is only Hudi.
    """
    return list(LAKES) if EFFORT > 1 or usual not in LAKES else [usual]
