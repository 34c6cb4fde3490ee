"""The table of groups and their states, computed from a few literal records."""

from pyspark.sql import SparkSession

from tests.spark.record_frames import RecordsOfBoot, at, select_columns, table


def test_latest_group_record_per_window(spark: SparkSession) -> None:
    """The state of a group in each window is that of its sidecar's last record."""
    boot = RecordsOfBoot()
    # If two records were observed at the same moment, the one with the later number counts.
    hasty = [boot.group(1, "hasty", 1, members=9), boot.group(1, "hasty", 1, members=2)]
    calmer = [boot.group(1, "calmer", 1, members=2), boot.group(1, "calmer", 1, members=9)]
    found = table(
        spark,
        "groups",
        *reversed(hasty),
        *reversed(calmer),
        boot.group(1, "orders", 3, state="PreparingRebalance", members=2),
        boot.group(9, "orders", 4, state="Stable", members=3, max_size=5),
        boot.group(5, "orders", 3, state="CompletingRebalance", members=2),
        # Windows begin at multiples of five minutes.
        boot.group(299.999, "orders", 4, state="Stable", members=3, max_size=6),
        boot.group(300, "orders", 4, state="Empty", members=0),
        boot.group(5, "", -1, state="Empty", members=0, assignor="", protocol_type=""),
        boot.group(5, "größe ☂\n\x00", 1),
        # A group that was deleted and created again.
        boot.group(1, "anew", 50),
        boot.group(9, "anew", 1, members=7),
        # A group whose next snapshots have another state, and then the former one again.
        boot.group(1, "back", 5, members=1),
        boot.group(2, "back", 5, members=2),
        boot.group(3, "back", 5, members=1),
    )
    assert select_columns(found, "state", "generation", "members", "max_size", "observed_at") == {
        (0, "orders"): ("Stable", 4, 3, 6, at(299.999)),
        (300, "orders"): ("Empty", 4, 0, None, at(300)),
        (0, ""): ("Empty", -1, 0, None, at(5)),
        (0, "größe ☂\n\x00"): ("Stable", 1, 1, None, at(5)),
        (0, "anew"): ("Stable", 1, 7, None, at(9)),
        (0, "back"): ("Stable", 5, 1, None, at(3)),
        (0, "hasty"): ("Stable", 1, 2, None, at(1)),
        (0, "calmer"): ("Stable", 1, 9, None, at(1)),
    }
    assert found[0, ""]["assignor"] == found[0, ""]["protocol_type"] == ""
    assert found[0, "orders"]["sidecar"] == "a"
    assert {row["sidecars"] for row in found.values()} == {1}


def test_newest_generation_wins(spark: SparkSession) -> None:
    """If several sidecars report a group, the record with the newest valid generation counts, then the newest one."""
    old, new = RecordsOfBoot("old"), RecordsOfBoot("new")
    liar, fast = RecordsOfBoot("liar"), RecordsOfBoot("fast", ahead=120)
    found = table(
        spark,
        "groups",
        # The old coordinator's sidecar continues to report its last state.
        new.group(5, "moved", 8, members=4),
        old.group(9, "moved", 7, members=2),
        new.group(305, "moved", 8, members=4),
        # Both sidecars report the same generation.
        old.group(5, "tied", 3, state="PreparingRebalance"),
        new.group(6, "tied", 3, state="Stable"),
        # Each sidecar's last report counts, even if it has a lower generation.
        old.group(1, "lower", 9),
        old.group(2, "lower", 2),
        new.group(1, "lower", 3),
        # No coordinator has such a generation. With a possible generation, the false report would count.
        liar.group(7, "lied about", 2**31, members=99),
        new.group(5, "lied about", 4),
        liar.group(7, "lied about well", 2**31 - 1, members=99),
        new.group(5, "lied about well", 4),
        # A clock that is ahead matters only between equal generations.
        fast.group(1, "early", 6),
        new.group(8, "early", 7),
        fast.group(1, "early and tied", 7),
        new.group(8, "early and tied", 7),
        # Only the false sidecar reports this group.
        liar.group(7, "nobody else's", 2**62),
    )
    assert select_columns(found, "sidecar", "generation", "members", "state", "sidecars") == {
        (0, "moved"): ("new", 8, 4, "Stable", 2),
        (300, "moved"): ("new", 8, 4, "Stable", 1),
        (0, "tied"): ("new", 3, 1, "Stable", 2),
        (0, "lower"): ("new", 3, 1, "Stable", 2),
        (0, "lied about"): ("new", 4, 1, "Stable", 2),
        (0, "lied about well"): ("liar", 2**31 - 1, 99, "Stable", 2),
        (0, "early"): ("new", 7, 1, "Stable", 2),
        (0, "early and tied"): ("fast", 7, 1, "Stable", 2),
        (0, "nobody else's"): ("liar", 2**62, 1, "Stable", 1),
    }
