# SPDX-License-Identifier: Apache-2.0
"""The metrics of a run for Prometheus, at ``GET /metrics``.

Labels are names of topics, partitions, tables and losses, and reason codes; never keys or values
of rows.
"""

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from changelane.cli.run_metrics import Totals
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError, MissingExtraError
from changelane.formats.contract.losses import loss_class, loss_name, loss_of
from changelane.pipeline.kafka_offsets import partitions

if TYPE_CHECKING:
    from prometheus_client import Metric


class Collector(Protocol):
    """Something that yields metrics; Prometheus calls it from its own threads."""

    def collect(self) -> "Iterator[Metric]": ...


class Metrics:
    """The collector of the figures of a run.

    Args:
        pipeline: The pipeline's name.
        totals: Returns the totals of the run so far.
    """

    def __init__(self, pipeline: str, totals: Callable[[], Totals]) -> None:
        self._pipeline = printable(pipeline)
        self._totals = totals

    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            InfoMetricFamily,
            SummaryMetricFamily,
        )

        totals = self._totals()  # once, so that all metrics belong to one batch
        yield InfoMetricFamily(
            "changelane_pipeline", "The pipeline that runs.", {"name": self._pipeline}
        )
        yield SummaryMetricFamily(
            "changelane_batch_seconds",
            "The number of batches and their duration.",
            totals.batches,
            totals.seconds,
        )
        for name, help_, value in (
            ("messages_in", "Messages read from topics.", totals.messages_in),
            ("events", "Events of tables in messages or lines.", totals.events),
            ("messages_out", "Messages sent to topics.", totals.messages_out),
        ):
            if value is not None:
                yield CounterMetricFamily(f"changelane_{name}", help_, value)
        yield _counter(
            "table_events",
            "Events of a table, including quarantined ones.",
            "table",
            totals.tables,
        )
        yield _counter(
            "possible_duplicates",
            "Added rows of a table that may be duplicates.",
            "table",
            totals.possible_duplicates,
        )
        yield _counter("quarantined", "Quarantined events.", "reason", totals.quarantined)
        lost: Counter[str] = Counter()
        for text, count in totals.losses.items():
            lost[loss_name(loss_of(text)[0])] += count
        losses = CounterMetricFamily(
            "changelane_losses",
            "Parts of sent messages that their format cannot carry.",
            labels=["loss", "class"],
        )
        for name, count in lost.items():
            losses.add_metric([printable(name), loss_class(name)], count)
        yield losses
        lag = GaugeMetricFamily(
            "changelane_lag",
            "Messages of a source partition after the last batch.",
            labels=["topic", "partition"],
        )
        for topic, number, count in partitions(totals.lag or {}):
            lag.add_metric([printable(topic), str(number)], count)
        yield lag
        if totals.last is not None:
            yield GaugeMetricFamily(
                "changelane_last_batch_timestamp_seconds",
                "The end of the last batch, as a Unix time.",
                totals.last.time.timestamp(),
            )


def _counter(name: str, help_: str, label: str, counts: Mapping[str, int]) -> "Metric":
    """Return a counter with one label."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"changelane_{name}", help_, labels=[label])
    for value, count in counts.items():
        family.add_metric([printable(value)], count)
    return family


class Server:
    """Serves Prometheus until it is closed.

    Attributes:
        address: The URL of the metrics.
    """

    def __init__(self, collectors: Iterable[Collector], host: str, port: int) -> None:
        """Start the server.

        Raises:
            MissingExtraError: prometheus-client is not installed.
            ConfigError: The port is in use, or the address does not belong to this machine.
        """
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise MissingExtraError("prometheus_client", "metrics") from None
        registry = CollectorRegistry()
        for collector in collectors:
            registry.register(collector)
        self._server: Any
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            place = f"port {port} of {host}"
            if error.errno == errno.EADDRINUSE:
                msg = f"{place} is in use: set another port for metrics (options.metrics_port)"
            else:
                msg = f"metrics cannot be served at {place}: {error.strerror}"
            raise ConfigError(msg) from None
        url_host = f"[{host}]" if ":" in host else host
        self.address = f"http://{url_host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
