# SPDX-License-Identifier: Apache-2.0
"""Every producer profile places every kind of event."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import ConfigError, UnknownNameError, profiles
from changelane.profiles.profile import changed_partitions
from changelane.testing import check_profile, events, golden
from changelane.testing.conformance import EFFORT

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
SUITE = [
    event for name in golden.native_names(GOLDEN) for event in golden.native_events(GOLDEN, name)
]

# Each with options by which every event has a place: all kinds of rules that the profile has.
PROFILES = {
    "debezium": [{"topic_prefix": "cdc"}, {"topic_prefix": "cdc", "run_id": "a-run"}],
    "canal": [
        {"topic": "example"},
        {"topic": "example", "partition_hash": ".*\\..*:$pk$"},
        {"topic": "example", "partition_hash": ".*\\..*", "dynamic_topic": "rows:.*\\..*"},
    ],
    "dts": [
        {"topic": "dts", "policy": "partition_0", "non_row_events": "broadcast"},
        {"topic": "dts", "policy": "table", "non_row_events": "drop"},
        {"topic": "dts", "policy": "primary_key"},
    ],
    "cdl": [{"topic": "cdl", "heartbeat_topic": "beats", "null_keys": "true"}],
    "lindorm": [{"topic": "lindorm", "null_keys": "true"}],
    "dms": [{}, {"topics": {"orders": "o"}}],
    "arcion": [{}, {"delimiter": "dot", "snapshot_suffix": ".snapshot"}],
    "datahub": [
        {"project": "p", "topic": "t"},
        {"project": "p", "topic": "t", "non_row_events": "broadcast"},
    ],
    "maxwell": [{}, {"partition_by": "primary_key", "partition_hash": "murmur3"}],
    "ticdc": [{}, {"topic_rule": "{schema}_{table}"}],
    "goldengate": [{"topic_mapping_template": "ogg", "null_keys": "true"}],
    "flink": [{"topic": "rows"}],
    "mongodb": [{"topic_prefix": "cdc", "topic_namespace_map": {"*": "all"}}],
}
CASES = [
    (name, format_name, options)
    for name, choices in PROFILES.items()
    for options in choices
    for format_name in profiles.module(name).FORMATS
]


def test_every_profile_is_checked():
    assert PROFILES.keys() == set(profiles.names())


@pytest.mark.parametrize(("name", "format_name", "options"), CASES)
def test_every_event_of_the_suite_has_a_place(name, format_name, options):
    profile = profiles.load(name, options)
    check_profile(profile, profile.codec(format_name), SUITE)


@pytest.mark.parametrize("name", PROFILES)
@settings(max_examples=15 * EFFORT, deadline=None)
@given(data=st.data())
def test_every_event_that_a_format_has_gets_a_place(name, data):
    options = data.draw(st.sampled_from(PROFILES[name]))
    profile = profiles.load(name, options)
    codec = profile.codec(data.draw(st.sampled_from(sorted(profile.formats))))
    check_profile(profile, codec, [data.draw(events(codec.carries))])


def test_an_unknown_profile_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'debezium'"):
        profiles.load("debezum", {})


@pytest.mark.parametrize("name", PROFILES)
def test_an_unknown_option_names_the_nearest(name):
    option = profiles.module(name).Options.__struct_fields__[0]
    with pytest.raises(ConfigError, match=f"did you mean '{option}'"):
        profiles.load(name, {option + "x": "1"})


def test_another_number_of_partitions_of_a_topic_in_use_warns():
    assert changed_partitions("orders", 4, 4) is None
    warning = changed_partitions("orders", 4, 6)
    assert warning is not None
    assert "topic orders had 4 partitions and has 6 now" in warning
