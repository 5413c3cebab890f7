"""Settings of a Spark that handles few rows and many plans: the tests'."""

from typing import Final

from changelane.spark.jars import LOG4J

CHEAP: Final = {
    "spark.sql.shuffle.partitions": "2",
    # compiling costs more than it saves, large pages too
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={LOG4J.as_uri()} "
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m"
    ),
    "spark.sql.codegen.wholeStage": "false",
    "spark.buffer.pageSize": "2m",
}
