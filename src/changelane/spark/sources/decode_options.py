# SPDX-License-Identifier: Apache-2.0
"""The options of a pipeline for decoding messages into event rows, for all sources."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from changelane.pipeline.config import Pipeline
from changelane.transforms.transform import Transform


class DecodeOptions(TypedDict):
    """Arguments of :func:`~changelane.spark.rows.decode.decode`."""

    keys: Mapping[str, tuple[str, ...]]
    tables_without_key: str
    epoch: int
    images: bool
    event_ids: bool
    captured: bool
    transforms: Sequence[Transform]
    skips_shadows: bool


def decode_options_of(pipeline: Pipeline) -> DecodeOptions:
    """Return the options; before images stay where a filter or a computed column may read them."""
    source = pipeline.source
    return DecodeOptions(
        keys=pipeline.options.keys,
        tables_without_key=pipeline.options.tables_without_key,
        epoch=pipeline.options.epoch,
        images=bool(pipeline.expressions),
        event_ids=source.uses_event_ids,
        captured=source.is_capture_log,
        transforms=pipeline.pure_steps,
        skips_shadows=pipeline.options.shadow_tables == "skip",
    )
