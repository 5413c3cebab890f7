# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster of Spark: a master and two workers, each with one core and 1 GB.

As a program, it is a driver that runs pipelines on the cluster and prints how much data it got.

Usage: spark_cluster.py MASTER PIPELINE.yaml ... -- TABLE ...    TABLE is a folder to read
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyspark

HOME: Final = Path(pyspark.__file__).parent
_STARTED: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master")
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"


class Cluster(NamedTuple):
    """The address of the master, and the Python of its workers, without any packages."""

    master: str
    python: str


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster; its workers have a Python without packages."""
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    running: list[subprocess.Popen[bytes]] = []
    try:
        master = _start(running, folder / "master.log", _MASTER, "--port", "0")
        url = _wait_for(folder / "master.log", _STARTED, master)
        logs = [folder / f"worker-{number}.log" for number in range(2)]
        for number, log in enumerate(logs):
            work = ["--work-dir", str(folder / f"work-{number}"), "--cores", "1", "--memory", "1g"]
            _start(running, log, _WORKER, *work, url)
        for log, worker in zip(logs, running[1:], strict=True):
            _wait_for(log, _REGISTERED, worker)
        yield Cluster(url, str(bare / "bin" / "python"))
    finally:
        for one in reversed(running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)  # with the executors of a worker
            one.wait()


def _start(running: list["subprocess.Popen[bytes]"], log: Path, name: str, *more: str) -> Any:
    inherited = ("PATH", "JAVA_HOME", "HOME", "TMPDIR", "LANG")
    environment = {one: os.environ[one] for one in inherited if one in os.environ}
    environment |= {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    address = ["--host", "127.0.0.1", "--webui-port", "0"]
    with log.open("wb") as output:
        started = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), name, *address, *more],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    running.append(started)
    return started


def _wait_for(log: Path, words: re.Pattern[str], process: "subprocess.Popen[bytes]") -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if match := words.search(log.read_text("utf-8", "replace")):
            return match[match.re.groups]
        time.sleep(0.1)
    raise RuntimeError(log.read_text("utf-8", "replace")[-2000:])


# -- as a program


def _driver(master: str, files: list[str], tables: list[str]) -> None:
    from pyspark.sql import SparkSession

    from changelane.cli import main

    report: dict[str, Any] = {"runs": [], "tables": {}}
    before = 0
    for file in files:
        main(["run", file, "--master", master], standalone_mode=False)
        spark = SparkSession.active()
        results = _results(spark)
        spark._jvm.System.gc()
        heap = spark._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
        report["runs"].append(
            {
                "result_bytes": results - before,
                "python_peak_kb": _peak_kb(),
                "heap_bytes": heap.getHeapMemoryUsage().getUsed(),
            }
        )
        before = results
    for path in tables:
        sums = spark.read.format("delta").load(path).selectExpr("count(*)", "sum(total)").head()
        report["tables"][path] = [int(sums[0]), int(sums[1])]
    sys.stdout.write(json.dumps(report) + "\n")


def _results(spark: Any) -> int:
    """Return the bytes of results that all tasks so far have sent to the driver."""
    context = spark._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    every = spark._jvm.java.util.ArrayList()
    no_quantiles = spark.sparkContext._gateway.new_array(spark._jvm.double, 0)
    stages = context.statusStore().stageList(every, False, False, no_quantiles, every)
    return sum(stages.apply(number).resultSize() for number in range(stages.size()))


def _peak_kb() -> int:
    status = Path("/proc/self/status").read_text("utf-8")
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1])


if __name__ == "__main__":
    middle = sys.argv.index("--")
    _driver(sys.argv[1], sys.argv[2:middle], sys.argv[middle + 1 :])
