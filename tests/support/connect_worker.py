# SPDX-License-Identifier: Apache-2.0
"""A worker of Kafka Connect in distributed mode, with Debezium's connector as a plugin.

Its jars are those of the embedded engine, which has Kafka Connect's runtime among its dependencies.
"""

import contextlib
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from changelane.spark.runtime.jars import fetch_debezium

_START_S = 120
_STOP_S = 20
_PLUGIN = ("io.debezium", "org.postgresql", "org.mariadb", "com.google.protobuf")
"""The beginnings of the jars that the worker itself must not have."""
_PROPERTIES = """\
bootstrap.servers={servers}
group.id=connect-{port}
listeners=http://127.0.0.1:{port}
plugin.path={plugins}
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
config.storage.topic=connect-{port}-configs
offset.storage.topic=connect-{port}-offsets
status.storage.topic=connect-{port}-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
offset.storage.partitions=1
status.storage.replication.factor=1
status.storage.partitions=1
offset.flush.interval.ms=500
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
"""


class ConnectWorker:
    """A worker, whose connectors and offsets are in topics of the broker.

    Attributes:
        url: The address of its REST interface.
        secrets_file: The file with the secrets of connectors.
        pid: The id of its process.
    """

    def __init__(self, servers: str, product: str, folder: Path, *, heap: str = "256m") -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.secrets_file = folder / "secrets.properties"
        self.secrets_file.touch(0o600)
        self._log = folder / "worker.log"
        plugin = folder / "plugins" / "debezium"
        plugin.mkdir(parents=True)
        worker_jars = []
        for jar in sorted(fetch_debezium(product).glob("*.jar")):
            if jar.name.startswith(_PLUGIN):
                (plugin / jar.name).symlink_to(jar)
            else:
                worker_jars.append(str(jar))
        properties = folder / "worker.properties"
        properties.write_text(
            _PROPERTIES.format(servers=servers, port=port, plugins=plugin.parent), "utf-8"
        )
        home = os.environ.get("JAVA_HOME")
        self._command = [
            str(Path(home, "bin", "java")) if home else "java",
            *(f"-Xmx{heap}", "-XX:TieredStopAtLevel=1" if heap == "256m" else "-server"),
            *("-cp", os.pathsep.join(worker_jars)),
            *("org.apache.kafka.connect.cli.ConnectDistributed", str(properties)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=output,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        deadline_s = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < deadline_s:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.url}/connectors", timeout=5),
            ):
                return self
            time.sleep(0.1)
        self.__exit__()
        lines = self._log.read_text("utf-8", "replace").splitlines()[-20:]
        raise RuntimeError("Kafka Connect did not start:\n" + "\n".join(lines))

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def add_secrets(self, secrets: Mapping[str, str]) -> None:
        """Write secrets into the file, as Java properties."""
        lines = [f"{key}={value}\n".replace("\\", "\\\\") for key, value in secrets.items()]
        with self.secrets_file.open("a", encoding="utf-8") as file:
            file.writelines(lines)

    def send(self, method: str, path: str) -> None:
        """Send a request of an operator."""
        request = urllib.request.Request(self.url + path, method=method)
        urllib.request.urlopen(request, timeout=30).close()
