# SPDX-License-Identifier: Apache-2.0
"""The figures of a run for Prometheus: what ``GET /metrics`` answers.

Labels are names of topics, partitions, tables and losses, and reason codes; never keys or values
of rows.
"""

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from changelane.cli.run_metrics import Totals
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError, MissingExtraError
from changelane.formats.contract.losses import loss_class, loss_name, loss_of
from changelane.pipeline.kafka_offsets import partitions

if TYPE_CHECKING:
    from prometheus_client import Metric


class Metrics:
    """What Prometheus calls, from threads of its own.

    Args:
        pipeline: The pipeline's name.
        totals: Returns what the run did up to now.
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

        totals = self._totals()  # once: all figures are of the same batch
        yield InfoMetricFamily(
            "changelane_pipeline", "The pipeline that runs.", {"name": self._pipeline}
        )
        yield SummaryMetricFamily(
            "changelane_batch_seconds",
            "How long the batches took, and how many there were.",
            totals.batches,
            totals.seconds,
        )
        for name, help_, value in (
            ("messages_in", "Messages taken from topics.", totals.messages_in),
            ("events", "Events of tables in the messages or lines that were taken.", totals.events),
            ("messages_out", "Messages sent to topics.", totals.messages_out),
        ):
            if value is not None:
                yield CounterMetricFamily(f"changelane_{name}", help_, value)
        yield _counter(
            "table_events",
            "Events that came for a table, those that were quarantined among them.",
            "table",
            totals.tables,
        )
        yield _counter(
            "possible_duplicates",
            "Rows that a table added and may hold already: nothing tells them from others.",
            "table",
            totals.possible_duplicates,
        )
        yield _counter("quarantined", "Events that were quarantined.", "reason", totals.quarantined)
        lost: Counter[str] = Counter()
        for text, count in totals.losses.items():
            lost[loss_name(loss_of(text)[0])] += count
        losses = CounterMetricFamily(
            "changelane_losses",
            "Parts of messages that were sent which their format cannot carry.",
            labels=["loss", "class"],
        )
        for name, count in lost.items():
            losses.add_metric([printable(name), loss_class(name)], count)
        yield losses
        lag = GaugeMetricFamily(
            "changelane_lag",
            "Messages that a partition of the source held behind the last batch.",
            labels=["topic", "partition"],
        )
        for topic, number, count in partitions(totals.lag or {}):
            lag.add_metric([printable(topic), str(number)], count)
        yield lag
        if totals.last is not None:
            yield GaugeMetricFamily(
                "changelane_last_batch_timestamp_seconds",
                "When the last batch was over, as a Unix time.",
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
    """Answers Prometheus until it is closed.

    Attributes:
        address: Where.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Begin to answer.

        Raises:
            MissingExtraError: prometheus-client is not installed.
            ConfigError: The port is in use, or the address is not one of this machine.
        """
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise MissingExtraError("prometheus_client", "metrics") from None
        registry = CollectorRegistry()
        registry.register(metrics)
        self._server: Any
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            place = f"port {port} of {host}"
            if error.errno == errno.EADDRINUSE:
                msg = f"{place} is in use: give metrics another one (options.metrics_port)"
            else:
                msg = f"metrics cannot be told at {place}: {error.strerror}"
            raise ConfigError(msg) from None
        url_host = f"[{host}]" if ":" in host else host
        self.address = f"http://{url_host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
