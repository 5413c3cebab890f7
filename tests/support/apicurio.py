# SPDX-License-Identifier: Apache-2.0
"""Apicurio's schema registry with its schemas in memory."""

import contextlib
import json
import os
import socket
import subprocess
import tarfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final, Self

from ivy_files import retrieved

VERSION: Final = "2.6.13.Final"
"""The newest version that runs on Java 17 and whose parts Maven has."""
_START_S: Final = 120
_IVY: Final = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="changelane" module="registry"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class ApicurioRegistry:
    """A registry in a process of its own.

    Attributes:
        url: The address of its own interface.
        confluent_url: The address of Confluent's interface.
    """

    def __init__(self, folder: Path) -> None:
        (archive,) = retrieved(f"apicurio-{VERSION}", _IVY, "tar.gz").glob("*.tar.gz")
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")
        (runner,) = folder.glob("*-runner.jar")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        address = f"http://127.0.0.1:{port}/apis"
        self.url, self.confluent_url = f"{address}/registry/v2", f"{address}/ccompat/v7"
        home = os.environ.get("JAVA_HOME")
        self._command = [
            str(Path(home, "bin", "java")) if home else "java",
            *("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m"),
            *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"),
            *("-jar", str(runner)),
        ]
        self._log = folder / "registry.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)
        deadline_s = time.monotonic() + _START_S
        while self._process.poll() is None and time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                self.request("GET", f"{self.confluent_url}/subjects")
                return self
            time.sleep(0.1)
        self.__exit__()
        lines = self._log.read_text("utf-8", "replace").splitlines()[-20:]
        raise RuntimeError("Apicurio did not start:\n" + "\n".join(lines))

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def request(self, method: str, url: str, content: Any = None) -> Any:
        """Send a request; return the JSON of the answer."""
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(
            url, body, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read() or b"null")
