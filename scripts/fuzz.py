# SPDX-License-Identifier: Apache-2.0
"""Feeds mutated messages to every decoder for some time: ``make fuzz``.

Prints the seed, and each finding as hex; exits with 1 if there is one.
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
    """Fuzz, and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", default=formats.names(), metavar="FORMAT")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}: {options.seconds:g} s on {', '.join(options.formats)}", flush=True)
    finding_count = 0
    with memory_limit(MEMORY):
        for result in fuzz(GOLDEN, options.formats, options.seed, seconds=options.seconds):
            if isinstance(result, Finding):
                finding_count += 1
                print(f"{result.format}: {result.reason}\n  {result.data.hex()}", flush=True)
            else:
                print(f"{result} inputs, {finding_count} findings (seed {options.seed})")
    return 1 if finding_count else 0


if __name__ == "__main__":
    sys.exit(main())
