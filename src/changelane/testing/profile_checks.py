# SPDX-License-Identifier: Apache-2.0
"""What every producer profile has to do, for ours and for those of others."""

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
    """Place events, each twice: by the profile, and by a copy that was pickled.

    Every message has a topic that Kafka allows and a partition that the topic has, or is left to
    Kafka's own choice; an event without messages is a loss that is told. Nothing fails but what
    the codec itself refuses.

    Raises:
        ConformanceError: One of it is not so.
        EncodeError: The profile refuses an event.
    """
    copy: Profile = pickle.loads(pickle.dumps(profile))  # noqa: S301 - our own object

    def encode(event: ChangeEvent) -> Encoded:
        try:
            return codec.encode(event, on_loss=OnLoss.IGNORE)
        except EncodeError:
            return Encoded((), (("event", "the format refuses it"),))

    for event in events:
        placed = profile.encode(event, encode, lambda _: partitions)
        if copy.encode(event, encode, lambda _: partitions) != placed:
            raise ConformanceError(f"{profile.name}: an event has two places")
        if not placed.messages and not placed.losses:
            raise ConformanceError(f"{profile.name}: an event is gone, and no loss tells it")
        for message in placed.messages:
            if message.topic is None:
                raise ConformanceError(f"{profile.name}: a message has no topic")
            check_topic(message.topic)
            if message.partition is not None and not 0 <= message.partition < partitions:
                raise ConformanceError(f"{profile.name}: no such partition")
            if message.value is None and not profile.tombstones:
                raise ConformanceError(f"{profile.name}: a tombstone that it does not write")
            is_spread = message.key is None and message.partition is None
            if is_spread and isinstance(event, DataChange) and not profile.null_keys:
                raise ConformanceError(f"{profile.name}: a row change in no order")
