# SPDX-License-Identifier: Apache-2.0
"""The options of lake sinks: where the tables are."""

from changelane.pipeline.lake_sinks import DeltaSink, IcebergSink, place_of


def test_the_place_of_tables_moves_with_their_folder() -> None:
    at_home = place_of(DeltaSink(path="/a/lake", location="/a/raw/{table}"))
    assert at_home == {"type": "delta", "location": "../raw/{table}"}
    assert place_of(DeltaSink(path="/b/lake", location="/b/raw/{table}")) == at_home
    elsewhere = place_of(DeltaSink(path="/a/lake", location="s3://raw/{table}"))
    assert elsewhere["location"] == "s3://raw/{table}"
    catalog = {"catalog-impl": "x.HiveCatalog", "uri": "thrift://user:secret@a"}
    place = place_of(IcebergSink(path="/a", catalog=catalog))
    assert place == {"type": "iceberg", "catalog": "x.HiveCatalog", "namespace": "changelane"}
