# SPDX-License-Identifier: Apache-2.0
"""Feeds every decoder mutated messages for a while: ``make fuzz``.

Prints the seed, and each input that a decoder does not survive as hex; ends with 1 if there is one.
"""

import argparse
import random
import sys
from pathlib import Path

from changelane import formats
from changelane.testing.fuzz import Finding, fuzz, memory_limit

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
MEMORY = 1 << 30


def main() -> int:
    """Fuzz, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", default=formats.names(), metavar="FORMAT")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    print(f"seed {given.seed}: {given.seconds:g} s on {', '.join(given.formats)}", flush=True)
    found = 0
    with memory_limit(MEMORY):
        for result in fuzz(GOLDEN, given.formats, given.seed, seconds=given.seconds):
            if isinstance(result, Finding):
                found += 1
                print(f"{result.format}: {result.reason}\n  {result.data.hex()}", flush=True)
            else:
                print(f"{result} inputs, {found} found (seed {given.seed})")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
