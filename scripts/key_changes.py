# SPDX-License-Identifier: Apache-2.0
"""Count the results of transactions with key changes: right, quarantined, or wrong.

    python scripts/key_changes.py --seed 1 --histories 100000 --order in-order

Every history comes from a simulated source that enforces its keys. Its rows are compared with those
of the tables in memory. Exits with 1 if a history is wrong and none of its events is quarantined.
"""

import argparse
import sys
from collections import Counter
from random import Random

from changelane.testing.key_change_histories import deliver, draw, judge, play


def main() -> int:
    """Simulate the histories of a seed and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--order", choices=_ORDERS, default="both")
    parser.add_argument("--show", type=int, default=0, help="print the numbers of wrong histories")
    parser.add_argument("--kind", default="", help="only classes with this text in their name")
    parser.add_argument("--words", nargs="*", default=["wrong"], choices=_WORDS)
    options = parser.parse_args()
    permuted = _ORDERS[options.order]
    counts: Counter[tuple[str, str]] = Counter()
    messages, shown = 0, 0
    for number in range(options.histories):
        chance = Random(f"{options.seed} {number}")  # noqa: S311 - histories, no secrets
        history_class = draw(chance, permuted=permuted, by_key=options.order == "by-key")
        history = play(chance, history_class)
        verdict = judge(deliver(chance, history_class, history.events), history)
        messages += len(history.events)
        word = (
            "quarantined" if verdict.quarantined_count else "right" if verdict.is_right else "wrong"
        )
        counts[history_class.name, word] += 1
        if word in options.words and shown < options.show and (options.kind in history_class.name):
            shown += 1
            print("wrong:", number, history_class, len(history.events))
    print(f"seed {options.seed}: {options.histories} histories, {messages} messages")
    for name in sorted({name for name, _ in counts}):
        print(f"  {name}:", *(f"{word} {counts[name, word]}," for word in _WORDS))
    return int(any(word == "wrong" for _, word in counts))


_ORDERS = {"in-order": False, "by-key": False, "permuted": True, "both": None}
_WORDS = ("right", "quarantined", "wrong")

if __name__ == "__main__":
    sys.exit(main())
