# SPDX-License-Identifier: Apache-2.0
"""Every decoder survives what nobody ever wrote, in bounded memory; ``make fuzz`` runs longer."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import formats, get_codec
from changelane.testing.conformance import EFFORT, ConformanceError
from changelane.testing.fuzz import Finding, check_input, fuzz, memory_limit, mutated, samples

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
NAMES = formats.names()
MEMORY = 512 << 20


@pytest.mark.parametrize("name", NAMES)
def test_mutated_messages_are_refused_or_whole(name):
    codec, stock = get_codec(name), samples(GOLDEN, name)
    assert stock

    @settings(max_examples=60 * EFFORT, derandomize=True, database=None)
    @given(st.sampled_from(stock), st.integers(0, 2**32 - 1))
    def check(sample, seed):
        check_input(codec, mutated(sample, random.Random(seed)))

    with memory_limit(MEMORY):
        check()


@pytest.mark.parametrize("name", NAMES)
def test_random_bytes_are_refused_or_whole(name):
    codec = get_codec(name)

    @settings(max_examples=25 * EFFORT, derandomize=True, database=None)
    @given(st.binary(max_size=200))
    def check(data):
        check_input(codec, data, data)

    with memory_limit(MEMORY):
        check()


def test_the_same_seed_makes_the_same_inputs():
    stock = samples(GOLDEN, "canal-json")
    one, two = ([mutated(sample, random.Random(7)) for sample in stock] for _ in range(2))
    assert one == two
    assert one != list(stock)


def test_memory_beyond_the_limit_is_found():
    class Glutton:
        """Eats memory for each message."""

        def decode(self, message):  # noqa: ARG002 - the protocol
            return (bytes(1 << 40),)

    with memory_limit(MEMORY), pytest.raises(ConformanceError, match="MemoryError"):
        check_input(Glutton(), b"{}")


def test_a_longer_run_ends_with_the_count_of_its_inputs():
    results = list(fuzz(GOLDEN, NAMES, 1, seconds=60, limit=60))
    assert not [found for found in results if isinstance(found, Finding)]
    assert results[-1] == 60
