# SPDX-License-Identifier: Apache-2.0
"""What a pipeline says of how its messages become event rows, whatever they come from."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from changelane.pipeline.config import Pipeline
from changelane.pipeline.kafka import KafkaSource
from changelane.transforms.transform import Step


class Reading(TypedDict):
    """Arguments of :func:`~changelane.spark.rows.decode.decode`, which says what they mean."""

    keys: Mapping[str, tuple[str, ...]]
    keyless: str
    epoch: int
    images: bool
    event_ids: bool
    transforms: Sequence[Step]


def reading_of(pipeline: Pipeline) -> Reading:
    """Return it; before images are kept where a filter or a computed column may read them."""
    source = pipeline.source
    return Reading(
        keys=pipeline.options.keys,
        keyless=pipeline.options.keyless,
        epoch=pipeline.options.epoch,
        images=bool(pipeline.expressions),
        event_ids=isinstance(source, KafkaSource) and source.order_by_event_id,
        transforms=pipeline.pure_steps,
    )
