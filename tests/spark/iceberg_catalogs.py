"""Iceberg catalogs in their own processes: REST, and Hive's metastore.

Both keep their entries in a database file. Python drives them through py4j. The REST catalog
is Iceberg's server for tests; Jetty and Hive are those of Spark.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ivy_files import SPARK, retrieved
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from changelane.spark.runtime.jars import cached_jars

Options = Mapping[str, str]

IVY: Final = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="changelane" module="rest"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{version}"
        conf="default->runtime,master">
      <artifact name="iceberg-core" type="jar"/>
      <artifact name="iceberg-core" type="jar" m:classifier="tests"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
"""The server is in the jar of Iceberg's tests, which ``spark.jars.packages`` cannot name."""
REST_VERSION: Final = "1.11.0"
"""Version of the server: not every release has its jar of tests in the repository."""
HIVE_SITE: Final = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName={folder}/derby;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.metastore.warehouse.dir": "file:{folder}/warehouse",
    # use a pool and a logger whose jars Spark has
    "datanucleus.connectionPoolingType": "HikariCP",
    "hive.async.log.enabled": "false",
    # needed to drop or rename columns, according to Iceberg's documentation
    "hive.metastore.disallow.incompatible.col.type.changes": "false",
}


def rest_jars() -> Path:
    """Return the folder of the REST server's jars (17 MB)."""
    ivy_file = IVY.format(version=REST_VERSION)
    return retrieved(f"rest-{REST_VERSION}", ivy_file, "jar", "bundle")


@contextmanager
def _java(folder: Path, *jars: str) -> Iterator[Any]:
    """Start a JVM with these jars ahead of Spark's; return its view in py4j."""
    port, process = launch_gateway(
        classpath=os.pathsep.join([*jars, f"{SPARK}/*"]),
        jarpath=str(next(SPARK.glob("py4j-*.jar"))),
        javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={folder}"],
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        yield gateway.jvm
    finally:
        gateway.close()
        process.kill()
        process.wait()  # threads of py4j read its output to the end
        process.stdin.close()


@contextmanager
def rest(folder: Path) -> Iterator[Options]:
    """Start a REST catalog with its files in a folder; return the options to connect to it."""
    sqlite = [str(jar) for jar in cached_jars("sqlite") if "sqlite" in jar.name]
    with _java(folder, f"{rest_jars()}/*", *sqlite) as jvm:
        options = jvm.java.util.HashMap()
        options.put("uri", f"jdbc:sqlite:{folder}/catalog.db")
        options.put("warehouse", f"file:{folder}/warehouse")
        options.put("jdbc.schema-version", "V1")
        catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
        catalog.initialize("rest", options)
        iceberg, jetty = jvm.org.apache.iceberg.rest, jvm.org.sparkproject.jetty
        servlet = iceberg.RESTCatalogServlet(iceberg.RESTCatalogAdapter(catalog))
        handler = jetty.servlet.ServletContextHandler()
        handler.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(handler)
        server.start()
        yield {"type": "rest", "uri": server.getURI().toString()}


@contextmanager
def hive(folder: Path) -> Iterator[Options]:
    """Start Hive's metastore with its files in a folder; return the options to connect to it."""
    entries = (
        f"<property><name>{key}</name><value>{value.format(folder=folder)}</value></property>"
        for key, value in HIVE_SITE.items()
    )
    (folder / "hive-site.xml").write_text(f"<configuration>{''.join(entries)}</configuration>")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with _java(folder, str(folder)) as jvm:
        metastore = jvm.org.apache.hadoop.hive.metastore
        # the tables for locks, which it does not create by itself
        metastore.txn.TxnDbUtil.prepDb(jvm.org.apache.hadoop.hive.conf.HiveConf())

        def serve() -> None:
            with suppress(Exception):  # stopped with its process
                metastore.HiveMetaStore.startMetaStore(port, None)

        threading.Thread(target=serve, daemon=True).start()
        until = time.monotonic() + 120
        while not _is_open(port):
            assert time.monotonic() < until, "the metastore does not start"
            time.sleep(0.1)
        warehouse = f"file:{folder}/warehouse"
        yield {"type": "hive", "uri": f"thrift://127.0.0.1:{port}", "warehouse": warehouse}


def _is_open(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
