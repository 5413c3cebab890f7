# SPDX-License-Identifier: Apache-2.0
"""Run SQL on Flink, in one JVM with everything (Flink's local mode).

Usage: flink_sql.py SCRIPT   (a JSON file with ``settings`` and ``statements``)

Flink's own client is not in its Python package, so this program calls Flink's ``TableEnvironment``
through Py4J, with the Py4J and the Hadoop that PySpark includes. It ends when the last job ends.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import flink
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

_OPENED: Final = (
    "java.io java.lang java.lang.reflect java.net java.nio java.text java.time java.util "
    "java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks sun.nio.ch"
).split()
"""The packages that Flink's configuration opens (``env.java.opts.all``)."""
_LOGGING: Final = """\
rootLogger.level = WARN
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d %p %c{1}: %m%n
"""


def flink_jvm(logging: Path) -> Any:
    """Start a JVM with Flink; return its classes."""
    jars = Path(pyspark.__file__).parent / "jars"
    logging.write_text(_LOGGING, "utf-8")
    hadoop = [str(jar) for jar in sorted(jars.glob("hadoop-client-*.jar"))]
    folders = [f"{folder}{os.sep}*" for folder in flink.jar_folders()]
    port = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        classpath=os.pathsep.join((*folders, *hadoop)),
        javaopts=[
            *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
            f"-Dlog4j2.configurationFile={logging.as_uri()}",
        ],
        die_on_exit=True,
        redirect_stdout=sys.stdout,
        redirect_stderr=sys.stderr,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm


def main() -> None:
    """Run the script of the command line."""
    path = Path(sys.argv[1])
    script = json.loads(path.read_text("utf-8"))
    jvm = flink_jvm(path.with_suffix(".log4j2.properties"))
    configuration = jvm.org.apache.flink.configuration.Configuration()
    for name, value in script["settings"].items():
        configuration.setString(name, value)
    api = jvm.org.apache.flink.table.api
    settings = api.EnvironmentSettings.newInstance().withConfiguration(configuration).build()
    environment = api.TableEnvironment.create(settings)
    for statement in script["statements"]:
        result = environment.executeSql(statement)
        if statement.startswith("INSERT"):
            getattr(result, "await")()


if __name__ == "__main__":
    main()
