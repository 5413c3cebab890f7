# SPDX-License-Identifier: Apache-2.0
"""The metrics of a continuous verification for Prometheus."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from changelane.conversion.terminal_text import printable

if TYPE_CHECKING:
    from prometheus_client import Metric

    from changelane.spark.verify.progress import TableProgress


class VerifyMetrics:
    """The collector of a verification's figures.

    Args:
        progress: The progress of each table, which the verification extends.
    """

    def __init__(self, progress: "Mapping[str, TableProgress]") -> None:
        self._progress = progress

    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics."""
        from prometheus_client.core import GaugeMetricFamily

        share = GaugeMetricFamily(
            "changelane_verified_share",
            "The share of a table's rows that the newest comparisons of its chunks proved.",
            labels=["table"],
        )
        oldest = GaugeMetricFamily(
            "changelane_verified_oldest_timestamp_seconds",
            "The oldest of these comparisons, as a Unix time, after all chunks had one.",
            labels=["table"],
        )
        different = GaugeMetricFamily(
            "changelane_verified_differences",
            "Rows of a table that differ and are not repaired.",
            labels=["table"],
        )
        for name, progress in dict(self._progress).items():
            labels = [printable(name)]
            share.add_metric(labels, progress.proven_share)
            different.add_metric(labels, progress.difference_count)
            if progress.oldest_time_s is not None:
                oldest.add_metric(labels, progress.oldest_time_s)
        yield share
        yield oldest
        yield different
