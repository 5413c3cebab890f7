# SPDX-License-Identifier: Apache-2.0
"""The arguments of the JVM, which every user of the machine sees, have no secret."""

import subprocess
import sys

from changelane.spark.runtime.session import jvm_arguments

SETTINGS = {
    "spark.hadoop.fs.s3a.secret.key": "S3CRET",
    "spark.hadoop.fs.s3a.access.key": "S3CRET",
    "spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net": "S3CRET",
    "spark.sql.catalog.lake.jdbc.password": "S3CRET",
    "spark.kafka.sasl.jaas.config": "S3CRET",
    "spark.driver.memory": "1g",
}
PROGRAM = f"""
from pathlib import Path
from changelane.spark.runtime.session import session

settings = {SETTINGS!r}
spark = session(master="local[1]", settings=settings)
pid = spark._jvm.java.lang.ProcessHandle.current().pid()
words = Path(f"/proc/{{pid}}/cmdline").read_bytes()
assert b"spark.driver.memory=1g" in words, words
assert b"S3CRET" not in words, words
conf = spark.sparkContext.getConf()
assert {{name: conf.get(name) for name in settings}} == settings
assert spark._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == "S3CRET"
assert spark.range(3).count() == 3
"""


def test_a_session_has_its_secrets_and_its_jvm_not() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_files_that_the_start_of_the_jvm_fetches_may_need_secrets() -> None:
    assert set(jvm_arguments(SETTINGS)) == {"spark.driver.memory"}
    remote = SETTINGS | {"spark.jars": "/x.jar,s3a://jars/x.jar"}
    assert jvm_arguments(remote) == remote
    local = SETTINGS | {"spark.jars": "file:///x.jar"}
    assert set(jvm_arguments(local)) == {"spark.driver.memory", "spark.jars"}
