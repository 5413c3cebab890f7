# SPDX-License-Identifier: Apache-2.0
"""What can be seen of a pipeline's source and sink within two seconds, before Spark starts.

Spark needs ten seconds to start, and its Kafka client thirty to give up on a broker that is not
there. What these checks cannot decide (a path of a cluster's file system, a broker behind TLS) is
left to the run.
"""

import contextlib
import os
import queue
import re
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.kafka import KafkaSink, KafkaSource, client_options

_ADDRESS: Final = re.compile(r"(?:[\w%.-]*://)?\[?([\w%.:-]*)]?:([0-9]+)")
"""Kafka's own pattern of an address (``Utils.HOST_PORT_PATTERN``)."""
_JVM_VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_CONNECT_S: Final = 2.0
_LIST_S: Final = 2.0
_UNKNOWN: Final = "unknown name"
_CLUSTER_VARIABLES: Final = (
    "HADOOP_CONF_DIR",
    "PYSPARK_GATEWAY_PORT",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "YARN_CONF_DIR",
)
"""With one of them in the environment, a file that is not ours may set another file system."""


def check_before_spark(pipeline: Pipeline, master: str | None = None) -> None:
    """Refuse what is certain to fail once Spark runs, within two seconds, and write nothing.

    Args:
        pipeline: The pipeline.
        master: Where Spark runs, when the user says so.

    Raises:
        ConfigError: A folder is not there or may not be written, an address has no port, or a topic
            is not there.
        UnreachableError: No broker of the source or the sink takes a connection.
    """
    source, sink = pipeline.source, pipeline.sink
    if _has_local_files(pipeline, master):
        if isinstance(source, FilesSource) and (path := local_path(source.path)) is not None:
            _check_source(source.path, path)
        for named, below in ((pipeline.folder, "_changelane"), (pipeline.checkpoint, "")):
            if (path := local_path(named)) is not None:
                _check_writable(named, path / below)
    if _has_proxy(pipeline):
        return
    for end in (source, sink):
        if isinstance(end, KafkaSource | KafkaSink):
            check_broker(end.servers)
    if isinstance(source, KafkaSource) and not client_options(source.spark):
        check_topics(source.servers, source.names)


def local_path(path: str) -> Path | None:
    """Return a path of this machine's file system; ``None`` for another one.

    >>> local_path("s3a://lake/shop") is None, local_path("file:///lake") == Path("/lake")
    (True, True)
    """
    scheme, mark, rest = path.partition("://")
    if not mark:
        return None if re.match(r"[a-z][a-z0-9+.-]+:/", path) else Path(path)
    return Path("/" + rest.lstrip("/")) if scheme == "file" else None


def _has_local_files(pipeline: Pipeline, master: str | None) -> bool:
    """Say whether a path without a scheme is one of this machine."""
    if any(name in os.environ for name in _CLUSTER_VARIABLES):
        return False
    options = pipeline.options.spark
    place = master or options.get("spark.master") or os.environ.get("MASTER") or "local"
    return place.startswith("local") and not any("defaultFS" in name for name in options)


def _has_proxy(pipeline: Pipeline) -> bool:
    """Say whether the JVM may reach its brokers through a proxy."""
    told = [*pipeline.options.spark.values(), *map(os.environ.get, _JVM_VARIABLES)]
    return any("socksProxyHost" in text for text in told if text)


def _check_source(named: str, path: Path) -> None:
    if not path.exists():
        raise ConfigError(f"there is no folder {named}")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"this user may not read {named}")


def _check_writable(named: str, path: Path) -> None:
    """Look at the nearest folder that is there: the run makes the others."""
    parent = next((each for each in (path, *path.parents) if each.exists()), Path("/"))
    if not parent.is_dir():
        raise ConfigError(f"{named} can be no folder: {parent} is a file")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigError(f"this user may not write to {parent}, where {named} belongs")


def check_broker(servers: str) -> None:
    """Connect to the brokers of a list; one that answers is enough.

    Raises:
        ConfigError: An address is not ``host:port``.
        UnreachableError: None of them takes a connection within two seconds.
    """
    addresses = []
    for server in filter(None, map(str.strip, servers.split(","))):
        parts = _ADDRESS.fullmatch(server)
        if parts is None or not 0 < int(parts[2]) <= 65535:
            raise ConfigError("servers is a list of host:port, and one of them is not")
        addresses.append((parts[1], int(parts[2])))
    answers: queue.Queue[str | None] = queue.Queue()
    for address in addresses:
        # a name server may keep a thread for long: none of them is waited for at the end
        threading.Thread(target=_connect, args=(*address, answers), daemon=True).start()
    reasons = []
    until = time.monotonic() + _CONNECT_S + 0.5
    for _ in addresses:
        try:
            reason = answers.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return  # a name server that takes its time: the run waits longer
        if reason is None:
            return
        reasons.append(reason)
    if all(reason == _UNKNOWN for reason in reasons):
        raise UnreachableError(f"nobody knows the broker's address {servers}")
    why = next(reason for reason in reasons if reason != _UNKNOWN)
    raise UnreachableError(f"the broker at {servers} does not answer ({why})")


def _connect(host: str, port: int, answers: "queue.Queue[str | None]") -> None:
    """Put why there is no connection into a queue; ``None`` = there may be one."""
    reason = None
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except socket.gaierror as error:
        is_undecided = error.errno == socket.EAI_AGAIN
        reason = None if is_undecided else _UNKNOWN
    except TimeoutError:
        reason = f"no answer in {_CONNECT_S:.0f} s"
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
    answers.put(reason)


def check_topics(servers: str, names: Iterable[str]) -> None:
    """Look whether topics are there, where a client of Kafka is installed that can tell.

    Raises:
        ConfigError: It names those that are not.
    """
    wanted = set(names)
    with contextlib.suppress(ImportError, _Unknown):
        if missing := sorted(wanted - _topics(servers)):
            raise ConfigError(f"there is no topic {', '.join(missing)} at {servers}")


class _Unknown(Exception):  # noqa: N818 - no error: the run asks again, and tells more
    """The broker did not tell."""


def _topics(servers: str) -> set[str]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        return set(admin.list_topics(timeout=_LIST_S).topics)
    except KafkaException:
        raise _Unknown from None
