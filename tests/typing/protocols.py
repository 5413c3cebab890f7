# SPDX-License-Identifier: Apache-2.0
"""Each implementation has the types of its protocol. Checked by mypy, never run."""

from typing import assert_type

from changelane import (
    ChangeEvent,
    Codec,
    Encoded,
    LossPolicy,
    Message,
    UnsupportedError,
    convert,
    get_codec,
)
from changelane.datahub.sdk import Sdk
from changelane.datahub.service import Service
from changelane.formats import (
    FormatModule,
    canal,
    debezium,
    debezium_flat,
    decoderbufs,
    maxwell,
    native,
    ogg,
    pgoutput,
    wal2json,
)
from changelane.formats.canal import protobuf
from changelane.formats.cdl import json as cdl_json
from changelane.formats.contract import json
from changelane.formats.contract.format import Format, StreamDecoder
from changelane.formats.contract.serde import Serde
from changelane.formats.mongodb import change_stream
from changelane.formats.plain import changelog, upsert
from changelane.formats.ticdc import avro as ticdc_avro
from changelane.profiles import ProfileModule, arcion, cdl, dts, lindorm
from changelane.profiles import canal as canal_profile
from changelane.profiles import datahub as datahub_profile
from changelane.profiles import debezium as debezium_profile
from changelane.profiles import maxwell as maxwell_profile
from changelane.profiles import mongodb as mongodb_profile

SERDES: tuple[Serde, ...] = (json,)
STREAMS: tuple[StreamDecoder, ...] = (
    change_stream.ChangeStream(change_stream.Options()).open_stream(),
    pgoutput.PgOutput(pgoutput.Options()).open_stream(),
    wal2json.Wal2Json(wal2json.Options()).open_stream(),
)

PROFILES: tuple[ProfileModule, ...] = (
    arcion,
    canal_profile,
    cdl,
    datahub_profile,
    debezium_profile,
    dts,
    lindorm,
    maxwell_profile,
    mongodb_profile,
)

MODULES: tuple[FormatModule, ...] = (
    canal,
    cdl_json,
    change_stream,
    changelog,
    debezium,
    debezium_flat,
    decoderbufs,
    maxwell,
    native,
    ogg,
    pgoutput,
    wal2json,
    protobuf,
    ticdc_avro,
    upsert,
)

FORMATS: tuple[Format, ...] = (
    canal.make(canal.Options()),
    cdl_json.make(cdl_json.Options()),
    change_stream.make(change_stream.Options()),
    debezium.make(debezium.Options()),
    debezium_flat.make(debezium_flat.Options()),
    decoderbufs.make(decoderbufs.Options()),
    maxwell.make(maxwell.Options()),
    ogg.make(ogg.Options()),
    pgoutput.make(pgoutput.Options()),
    wal2json.make(wal2json.Options()),
    native.make(native.Options()),
    changelog.make(changelog.Options()),
    protobuf.make(protobuf.Options()),
    ticdc_avro.make(ticdc_avro.Options()),
    upsert.make(upsert.Options()),
)


def public_api(message: Message, event: ChangeEvent, error: UnsupportedError) -> None:
    """The public API returns these types."""
    codec = get_codec("debezium-json", time_zone="UTC")
    assert_type(codec, Codec)
    assert_type(codec.decode(message), tuple[ChangeEvent, ...])
    assert_type(codec.encode(event, on_loss="warn"), Encoded)
    assert_type(codec.encode(event, on_loss=LossPolicy(accept=("data",))), Encoded)
    assert_type(convert(b"{}", "debezium-json", codec), Encoded)
    assert_type(error.losses, tuple[tuple[str, str], ...])


def service(sdk: Sdk) -> Service:
    return sdk
