# SPDX-License-Identifier: Apache-2.0
"""Checks of a pipeline's source and sink within two seconds, before Spark starts.

Spark needs ten seconds to start, and its Kafka client stops to wait for a missing broker after
thirty. A path of a cluster's file system or a broker behind TLS cannot be checked here; the run
checks them.
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
"""Variables with configurations of a cluster, which may set another default file system."""


def check_before_spark(pipeline: Pipeline, master: str | None = None) -> None:
    """Reject a pipeline that is certain to fail in Spark, within two seconds and without writes.

    Args:
        pipeline: The pipeline.
        master: Spark's master, if the user sets it.

    Raises:
        ConfigError: A folder does not exist or is not writable, an address has no port, or a topic
            does not exist.
        UnreachableError: No broker of the source or the sink accepts a connection.
    """
    source, sink = pipeline.source, pipeline.sink
    if _has_local_files(pipeline, master):
        for folder in source.folders:
            if (path := local_path(folder)) is not None:
                _check_source(folder, path)
        for folder, subfolder in ((pipeline.folder, "_changelane"), (pipeline.checkpoint, "")):
            if (path := local_path(folder)) is not None:
                _check_writable(folder, path / subfolder)
    if _has_proxy(pipeline):
        return
    for servers in filter(None, (source.brokers, sink.brokers)):
        check_broker(servers)
    if source.required_topics:
        check_topics(source.brokers, source.required_topics)


def local_path(path: str) -> Path | None:
    """Return a path of the local file system; ``None`` for another file system.

    >>> local_path("s3a://lake/shop") is None, local_path("file:///lake") == Path("/lake")
    (True, True)
    """
    scheme, mark, location = path.partition("://")
    if not mark:
        return None if re.match(r"[a-z][a-z0-9+.-]+:/", path) else Path(path)
    return Path("/" + location.lstrip("/")) if scheme == "file" else None


def _has_local_files(pipeline: Pipeline, master: str | None) -> bool:
    """Whether paths without a scheme are local paths."""
    options = pipeline.options.spark_options
    return has_local_master(pipeline, master) and not any("defaultFS" in name for name in options)


def has_local_master(pipeline: Pipeline, master: str | None = None) -> bool:
    """Whether Spark is certain to run on this machine alone.

    Args:
        pipeline: The pipeline.
        master: Spark's master, if the user sets it.
    """
    if any(name in os.environ for name in _CLUSTER_VARIABLES):
        return False
    options = pipeline.options.spark_options
    spark_master = master or options.get("spark.master") or os.environ.get("MASTER") or "local"
    return spark_master.startswith("local")


def _has_proxy(pipeline: Pipeline) -> bool:
    """Whether the JVM may use a proxy to its brokers."""
    option_texts = [*pipeline.options.spark_options.values(), *map(os.environ.get, _JVM_VARIABLES)]
    return any("socksProxyHost" in text for text in option_texts if text)


def _check_source(folder: str, path: Path) -> None:
    if not path.exists():
        raise ConfigError(f"the folder {folder} does not exist")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"no permission to read the folder {folder}")


def _check_writable(folder: str, path: Path) -> None:
    """Check the nearest existing parent folder, because the run creates the others."""
    parent = next((ancestor for ancestor in (path, *path.parents) if ancestor.exists()), Path("/"))
    if not parent.is_dir():
        raise ConfigError(f"the folder {folder} cannot be created: {parent} is a file")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"the folder {folder} cannot be created: no permission to write to {parent}"
        )


def check_broker(servers: str) -> None:
    """Connect to the brokers of a list; one answer is enough.

    Raises:
        ConfigError: An address is not ``host:port``.
        UnreachableError: No broker accepts a connection within two seconds.
    """
    addresses = []
    for server in filter(None, map(str.strip, servers.split(","))):
        host_and_port = _ADDRESS.fullmatch(server)
        if host_and_port is None or not 0 < int(host_and_port[2]) <= 65535:
            raise ConfigError("an address in bootstrap_servers is not host:port")
        addresses.append((host_and_port[1], int(host_and_port[2])))
    answers: queue.Queue[str | None] = queue.Queue()
    for address in addresses:
        # a slow name server may block a thread; daemon threads do not delay the exit
        threading.Thread(target=_connect, args=(*address, answers), daemon=True).start()
    reasons = []
    deadline_s = time.monotonic() + _CONNECT_S + 0.5
    for _ in addresses:
        try:
            reason = answers.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            return  # a slow name server, for which the run waits longer
        if reason is None:
            return
        reasons.append(reason)
    if all(reason == _UNKNOWN for reason in reasons):
        raise UnreachableError(f"the broker's address {servers} cannot be resolved")
    why = next(reason for reason in reasons if reason != _UNKNOWN)
    raise UnreachableError(f"the broker at {servers} does not answer ({why})")


def _connect(host: str, port: int, answers: "queue.Queue[str | None]") -> None:
    """Put the reason of a failed connection into a queue; ``None`` if it may be possible."""
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
    """Check that topics exist, if a Python client of Kafka is installed.

    Raises:
        ConfigError: Topics do not exist; the error names them.
    """
    topic_names = set(names)
    with contextlib.suppress(ImportError, _NoAnswer):
        if missing := sorted(topic_names - _topics(servers)):
            raise ConfigError(f"there is no topic {', '.join(missing)} at {servers}")


class _NoAnswer(Exception):  # noqa: N818 - no error: the run checks again
    """The broker did not answer."""


def _topics(servers: str) -> set[str]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        return set(admin.list_topics(timeout=_LIST_S).topics)
    except KafkaException:
        raise _NoAnswer from None
