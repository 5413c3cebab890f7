# SPDX-License-Identifier: Apache-2.0
"""The formats that a pipeline reads and writes, by its options."""

from collections.abc import Mapping
from typing import Any

from changelane import profiles
from changelane.codec import Codec, get_codec
from changelane.errors import ConfigError, MissingExtraError
from changelane.pipeline.kafka import KafkaSink
from changelane.profiles.profile import Profile


def sink_codec(sink: KafkaSink) -> tuple[Profile | None, Codec]:
    """Return the profile of a sink, if any, and the codec of its messages.

    Raises:
        ConfigError: A name or an option of them is wrong, or the producer writes another format.
    """
    if sink.profile is None:
        return None, get_codec(sink.format, **sink.format_options)
    profile = profiles.load(sink.profile, sink.profile_options)
    return profile, profile.codec(sink.format, sink.format_options)


def check_formats(source: str, options: Mapping[str, Any], sink: object) -> None:
    """Refuse unknown formats and profiles, and options that they do not have.

    Args:
        source: The format of the messages of the source.
        options: Its options.
        sink: The sink of the pipeline.

    Raises:
        ConfigError: A name or an option is wrong; the message names the section.
    """
    section = "source.format"
    try:
        get_codec(source, **options)
        if isinstance(sink, KafkaSink):
            section = "sink.format" if sink.profile is None else "sink.profile"
            sink_codec(sink)
    except MissingExtraError:
        return  # the file is right
    except ConfigError as error:
        raise ConfigError(f"{section}: {error}") from None
