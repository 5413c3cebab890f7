"""Tables that follow statements end as the database itself that was told of."""

from random import Random
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from changelane.event import ChangeEvent
from changelane.tables.following import FollowingTables
from changelane.testing.conformance import EFFORT
from changelane.testing.evolving import Database, Story
from changelane.testing.histories import rewound, shuffled


def check(story: Story, batches: list[list[ChangeEvent]], *, keep: bool) -> None:
    tables = FollowingTables(keep=keep)
    for batch in batches:
        tables.apply(batch)
    for table, rows in story.tables.items():
        found = {row["id"]: row for row in tables.rows(table)}
        assert found.keys() == rows.keys(), table
        for key, row in rows.items():
            told: dict[str, Any] = {name.lower(): value for name, value in row.items()}
            for name, value in told.items():
                held = found[key].get(name)
                if (table, name) in story.untold and held is None:
                    continue  # unknown, and said so
                assert held == value, (table, key, name)
            if not keep:
                assert found[key].keys() <= told.keys(), (table, key)


# a smaller history says little more than the one that failed, and takes minutes to find
@settings(
    max_examples=20 * EFFORT, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_following_tables_equal_the_database(chance: Random, keep: bool, in_order: bool) -> None:
    story = Database(chance).play(40)
    deliver = rewound if in_order else shuffled
    check(story, deliver(chance, story.events), keep=keep)
