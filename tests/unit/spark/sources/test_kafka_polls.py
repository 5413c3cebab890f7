# SPDX-License-Identifier: Apache-2.0
"""The size of polls, by the number of partitions."""

import pytest

from changelane.spark.sources.kafka import poll_options


@pytest.mark.parametrize(
    ("partition_count", "records"), [(0, 4000), (1, 4000), (8, 4000), (16, 2000), (63, 507)]
)
def test_polls_are_large_if_partitions_are_few(partition_count: int, records: int) -> None:
    assert poll_options(partition_count)["kafka.max.poll.records"] == str(records)


@pytest.mark.parametrize("partition_count", [64, 1000])
def test_polls_of_many_partitions_are_those_of_kafka(partition_count: int) -> None:
    assert poll_options(partition_count) == {}
