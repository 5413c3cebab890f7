# SPDX-License-Identifier: Apache-2.0
"""``changelane run`` into topics: a source and a sender as one Spark stream.

Delivery is at least once. A failed batch is sent again from its beginning, with the same event ids.
"""

import time
from collections.abc import Callable
from typing import Any, cast

from pyspark.sql import SparkSession

from changelane.formats.contract.losses import LossWarnings, loss_of
from changelane.pipeline.config import Pipeline
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Marker
from changelane.spark.run.interrupts import Interrupts
from changelane.spark.run.query import (
    BatchFunction,
    check_budget,
    stream_errors,
    stream_of,
)
from changelane.spark.run.trigger import run_stream
from changelane.spark.sinks.blocked_keys import BlockedKeys
from changelane.spark.sinks.interface import check_order, ends_of, engine_of, sender_of
from changelane.spark.sinks.report import DeliveriesReport, DeliveryReport
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.interface import OrderedInput, input_of
from changelane.spark.state.offset_log import OffsetLog, check_new_start


def run_to_topics(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    on_batch: Callable[[DeliveryReport], None] = lambda _: None,
    notify: Callable[[str], None] = lambda _: None,
    on_step: Callable[[str], None] = lambda _: None,
    check_source: Callable[[], None] = lambda: None,
) -> DeliveriesReport:
    """Run a pipeline into topics until all input is sent, or for ever.

    It may be stopped or killed at any moment and run again: no message is lost, and the messages of
    the batch under way may be sent twice.

    Args:
        spark: The session.
        pipeline: A pipeline from topics or a capture log to topics.
        on_batch: Called with each batch.
        notify: Shows a note to the user.
        on_step: Called with the name of each step of a batch when it begins.
        check_source: Called about every second; it raises to stop the run.

    Raises:
        CaptureError: The capture of the source's database failed.
        ConfigError: A name is wrong, or the source has deleted messages that were not read yet.
        RunError: The stream failed.
        BudgetError: The run quarantined more than the options allow.
    """
    source, sink = ends_of(pipeline)
    check_order(spark, source, sink, notify)
    engine_of(sink).check(spark, pipeline, source, notify)
    checkpoint = Checkpoint(spark, pipeline.checkpoint)
    read = cast("OrderedInput", input_of(spark, pipeline, checkpoint, notify))
    read.verify()
    sender = sender_of(spark, pipeline, source, notify)
    blocked_keys = BlockedKeys(lake_of(spark, pipeline), pipeline.name, is_enabled=sink.blocks_keys)
    report = DeliveriesReport(pipeline.name)
    warnings = LossWarnings(sink.on_loss, sink.format)
    log = OffsetLog(spark, pipeline.folder, pipeline.name)
    if checkpoint.is_created:
        read.check(log.read())
    elif log.read():
        check_new_start(pipeline)
        notify(f"the checkpoint {checkpoint.path} does not exist: messages are sent again")
        log.clear()

    def process_batch(batch: Any, number: int) -> None:
        check_budget(pipeline.options, report)
        start_s = time.monotonic()
        on_step("sending")
        offsets = read.offsets_of(number, batch)
        log.record_batch(checkpoint.query(), number, offsets)
        marker = Marker(pipeline.name, checkpoint.query(), number)
        with blocked_keys.open_batch(read.messages(batch), marker) as (messages, batch_reader):
            delivery_report = sender.send(messages, batch_reader, marker)
        blocked_keys.record_rejected(sum(delivery_report.quarantined.values()))
        delivery_report.lag = read.lag(offsets)
        delivery_report.seconds = time.monotonic() - start_s
        report.add(delivery_report)
        for note in warnings.of(map(loss_of, delivery_report.losses)):
            notify(note)
        on_batch(delivery_report)

    interrupts = Interrupts(notify)
    batch_function = BatchFunction(process_batch, interrupts)
    stream = stream_of(spark, read, pipeline, batch_function)
    with stream_errors(report, batch_function, pipeline), interrupts:

        def check() -> None:
            interrupts.check()
            check_source()

        run_stream(stream, None, lambda: 0, lambda: None, check)
    return report
