# SPDX-License-Identifier: Apache-2.0
"""The checks that every producer profile must pass, also third-party profiles."""

import pickle
from collections.abc import Iterable

from changelane.codec import Codec, Encoded, OnLoss
from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange
from changelane.profiles.profile import Profile, check_topic
from changelane.testing.conformance import ConformanceError


def check_profile(
    profile: Profile, codec: Codec, events: Iterable[ChangeEvent], *, partitions: int = 5
) -> None:
    """Encode events twice: with the profile, and with a pickled copy.

    Every message has a valid topic and an existing partition, or Kafka chooses the partition. An
    event without messages is a reported loss. The profile rejects no event that the codec accepts.

    Raises:
        ConformanceError: The profile violates a rule.
        EncodeError: The profile rejects an event.
    """
    copy: Profile = pickle.loads(pickle.dumps(profile))  # noqa: S301 - our own object

    def encode(event: ChangeEvent) -> Encoded:
        try:
            return codec.encode(event, on_loss=OnLoss.IGNORE)
        except EncodeError:
            return Encoded((), (("event", "the format rejects it"),))

    for event in events:
        placed = profile.encode(event, encode, lambda _: partitions)
        if copy.encode(event, encode, lambda _: partitions) != placed:
            raise ConformanceError(f"{profile.name}: the copy gives different messages")
        if not placed.messages and not placed.losses:
            raise ConformanceError(f"{profile.name}: an event has neither messages nor a loss")
        for message in placed.messages:
            if message.topic is None:
                raise ConformanceError(f"{profile.name}: a message has no topic")
            check_topic(message.topic)
            if message.partition is not None and not 0 <= message.partition < partitions:
                raise ConformanceError(f"{profile.name}: a message has an unknown partition")
            if message.value is None and not profile.tombstones:
                raise ConformanceError(f"{profile.name}: a tombstone, which the profile excludes")
            is_spread = message.key is None and message.partition is None
            if is_spread and isinstance(event, DataChange) and not profile.null_keys:
                raise ConformanceError(f"{profile.name}: a row change without key and partition")
