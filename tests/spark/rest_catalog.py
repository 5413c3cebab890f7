"""A REST catalog of Iceberg's, in a process of its own that Python drives through py4j.

It is Iceberg's own server for tests, over a database in a file; Jetty is Spark's.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from changelane.spark.runtime.jars import fetched, ivy_dir, packages

Options = Mapping[str, str]

SPARK: Final = Path(pyspark.__file__).parent / "jars"
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
"""``spark.jars.packages`` has no words for the jar of a project's tests, where the server is."""


def rest_jars() -> Path:
    """Return the folder of the REST server's jars (17 MB), fetched once by Spark's own Ivy."""
    kept = ivy_dir()
    assert kept is not None
    version = packages("iceberg").rpartition(":")[2]
    folder = kept / f"rest-{version}"
    if not folder.is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=kept))
        (fresh / "ivy.xml").write_text(IVY.format(version=version))
        command = ["java", "-cp", f"{SPARK}/*", "org.apache.ivy.Main", "-warn"]
        command += ["-ivy", str(fresh / "ivy.xml"), "-cache", str(fresh / "cache")]
        command += ["-types", "jar", "bundle"]
        place = fresh / "jars" / "[artifact]-[revision](-[classifier]).[ext]"
        subprocess.run([*command, "-retrieve", str(place)], check=True)
        (fresh / "jars").rename(folder)
        shutil.rmtree(fresh)
    return folder


@contextmanager
def _java(folder: Path, *jars: str) -> Iterator[Any]:
    """Start a JVM of its own with these jars before Spark's; return what py4j calls it."""
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
        process.communicate()


@contextmanager
def rest(folder: Path) -> Iterator[Options]:
    """Start a REST catalog whose files lie in a folder; return the options that name it."""
    sqlite = [str(jar) for jar in fetched("sqlite") if "sqlite" in jar.name]
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
