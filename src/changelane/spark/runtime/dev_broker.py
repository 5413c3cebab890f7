# SPDX-License-Identifier: Apache-2.0
"""A Kafka broker in one local process, for tests and demonstrations.

It has one node and no security. Its data is deleted when it stops.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyspark

from changelane.errors import ChangelaneError
from changelane.spark.runtime.jars import broker_dir, fetch_broker

_START_S: Final = 180
_STOP_S: Final = 20
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
num.partitions={partitions}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.check.interval.ms=1000
log.cleaner.backoff.ms=500
log.initial.task.delay.ms=1000
"""


class BrokerError(ChangelaneError):
    """The broker did not start."""


class Broker:
    """A broker that runs as a child process.

    Attributes:
        servers: Its address, for ``bootstrap_servers`` of a pipeline.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", servers: str, path: Path) -> None:
        self._process = process
        self._log_path = path
        self.servers = servers

    @property
    def is_up(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""
        return self._process.wait()

    def _await(self) -> None:
        host, _, port = self.servers.rpartition(":")
        deadline = time.monotonic() + _START_S
        while self.is_up and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return
            time.sleep(0.05)
        log_lines = self._log_path.read_text("utf-8", "replace").splitlines()[-5:]
        raise BrokerError("the broker did not start: " + " ".join(log_lines))

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def broker(
    *, port: int | None = None, partitions: int = 1, settings: Sequence[str] = ()
) -> Iterator[Broker]:
    """Start a broker on 127.0.0.1; stop it and delete its data at the end.

    Args:
        port: Its port; ``None`` = a free one.
        partitions: The number of partitions of automatically created topics.
        settings: More lines of its properties.

    Raises:
        BrokerError: Its jars cannot be fetched, or it does not start.
    """
    if not broker_dir().is_dir():
        fetch_broker()
    folder = Path(tempfile.mkdtemp(prefix="changelane-broker-"))
    process: subprocess.Popen[bytes] | None = None
    try:
        broker_port, controller_port = _free_ports(port)
        properties, log_file = folder / "server.properties", folder / "broker.log"
        text = _PROPERTIES.format(
            port=broker_port,
            controller=controller_port,
            logs=folder / "logs",
            partitions=partitions,
        )
        properties.write_text("\n".join((text, *settings, "")), "utf-8")
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        with log_file.open("wb") as output:
            identity = str(uuid.uuid4())
            tool = ["kafka.tools.StorageTool", "format", "-t", identity, "-c", str(properties)]
            subprocess.run(  # noqa: S603 - our own arguments
                _java(*tool), stdout=output, stderr=output, env=environment, check=False
            )
            # a process group of its own: Ctrl-C in a terminal must reach changelane only
            process = subprocess.Popen(  # noqa: S603 - our own arguments
                _java("kafka.Kafka", str(properties)),
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        dev_broker = Broker(process, f"127.0.0.1:{broker_port}", log_file)
        dev_broker._await()
        yield dev_broker
    finally:
        if process is not None:
            Broker(process, "", folder)._stop()
        shutil.rmtree(folder, ignore_errors=True)


def _java(*arguments: str) -> list[str]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    # Spark's Ivy does not fetch Scala, because Spark has the same version
    scala = sorted((Path(pyspark.__file__).parent / "jars").glob("scala-library-2.*.jar"))
    path = os.pathsep.join((f"{broker_dir()}{os.sep}*", *map(str, scala)))
    return [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", path, *arguments]


def _free_ports(port: int | None) -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", port or 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
