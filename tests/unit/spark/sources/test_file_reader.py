# SPDX-License-Identifier: Apache-2.0
"""What a task makes of files: each as a whole or not at all, and nothing without a limit."""

import bz2
import gzip
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from changelane.conversion import compression, message_files
from changelane.conversion.message_files import read_record
from changelane.data_files import data_file
from changelane.errors import DecodeError
from changelane.pipeline.row_options import RowOptions
from changelane.spark.rows.builder import RowBuilder, row_builder
from changelane.spark.rows.rejected import read_details
from changelane.spark.rows.schema import FIELD_INDEX
from changelane.spark.sources import file_reader, file_tasks
from changelane.spark.sources.file_listing import Root
from changelane.spark.sources.file_reader import Chunks, FileReader, Piece, ReadingError, chunk_rows
from changelane.spark.sources.file_tasks import distribute
from changelane.spark.state.file_log import File


def line(number: int) -> bytes:
    told = {"op": "c", "table": {"name": "t"}, "key": ["id"], "after": {"id": number}}
    told |= {"schema": [{"name": "id", "type": "int64"}]}
    return json.dumps(told | {"position": {"domain": "sequence", "value": number}}).encode()


LINES = b"".join(line(number) + b"\n" for number in range(1, 6))


def builder(**more: Any) -> RowBuilder:
    return row_builder("native-json", {}, **more)


def rows(piece: Piece) -> list[tuple[Any, ...]]:
    return [row for _, made in FileReader(builder(), None).rows(piece) for row in made]


def ids(made: list[tuple[Any, ...]]) -> list[int]:
    return [
        json.loads(row[FIELD_INDEX["after"]])["id"]
        for row in made
        if row[FIELD_INDEX["kind"]] == "data"
    ]


def refused(made: list[tuple[Any, ...]]) -> list[str]:
    return [row[FIELD_INDEX["code"]] for row in made if row[FIELD_INDEX["kind"]] == "error"]


def of(path: Path, size: int | None = None, **more: Any) -> Piece:
    return Piece(str(path), path.name, path.stat().st_size if size is None else size, **more)


def hadoop(piece: Piece, data: bytes) -> list[tuple[Any, ...]]:
    """Return what is made of a file's bytes as Hadoop brings them."""
    parts = data.split(b"\n")
    parts = parts[:-1] if not parts[-1] else parts
    told = ((one, piece.path, len(data)) for one in parts)
    made = chunk_rows(FileReader(builder(), None), {piece.path: piece}, told)
    return [row for _, rows in made for row in rows]


@pytest.mark.parametrize("begins", [1, 7, 100, len(line(1)), len(line(1)) + 1, len(LINES) - 1])
def test_parts_of_a_file_have_each_line_once(tmp_path: Path, begins: int) -> None:
    path = tmp_path / "a.jsonl"
    for end in (b"", b"\n"):
        path.write_bytes(LINES.rstrip() + end)
        size = path.stat().st_size
        parts = [of(path, begin=at, end=at + begins) for at in range(0, size, begins)]
        made = [row for part in parts for row in rows(part)]
        assert ids(made) == [1, 2, 3, 4, 5]
        starts = [row[FIELD_INDEX["offset"]] for row in made if row[FIELD_INDEX["kind"]] == "data"]
        assert starts == [LINES.index(line(number)) for number in range(1, 6)]


def test_what_was_appended_since_it_was_listed_is_not_read(tmp_path: Path) -> None:
    for name, data in (("a.jsonl", LINES), ("a.jsonl.gz", gzip.compress(LINES))):
        path = tmp_path / name
        path.write_bytes(data)
        piece = of(path)
        path.write_bytes(data + data)
        assert ids(rows(piece)) == [1, 2, 3, 4, 5]
        assert ids(rows(piece._replace(size=None))) == [1, 2, 3, 4, 5] * 2


@pytest.mark.parametrize("ending", ["gz", "zst", "bz2"])
def test_a_file_that_is_cut_is_one_error_with_its_path_and_none_of_its_lines(
    tmp_path: Path, ending: str
) -> None:
    compress = {"gz": gzip.compress, "zst": zstandard.compress, "bz2": bz2.compress}
    data = compress[ending](LINES + os.urandom(100_000))
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(data[:-30])
    for made in (rows(of(path)), hadoop(of(path), data[:-30])):
        (row,) = made
        assert (row[FIELD_INDEX["kind"]], row[FIELD_INDEX["code"]]) == (
            "error",
            "corrupt_compression",
        )
        assert (row[FIELD_INDEX["topic"]], row[FIELD_INDEX["raw_value"]]) == (path.name, None)
        rest = read_details(row[FIELD_INDEX["after"]])
        assert (rest.file, rest.is_withheld) == (str(path), False)
    path.write_bytes(LINES)  # it is none at all
    assert refused(rows(of(path))) == ["corrupt_compression"]
    path.write_bytes(compress[ending](LINES))
    assert ids(rows(of(path))) == ids(hadoop(of(path), path.read_bytes())) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kept", [10, file_reader.MAX_BUFFER_BYTES])
def test_a_large_file_is_expanded_again_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(file_reader, "MAX_BUFFER_BYTES", kept)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(LINES))
    assert ids(rows(of(path))) == ids(hadoop(of(path), path.read_bytes())) == [1, 2, 3, 4, 5]


def test_a_bomb_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "FREE_EXPANSION", 1 << 16)
    path = tmp_path / "a.jsonl.bz2"
    path.write_bytes(bz2.compress(LINES + bytes(10 << 20)))
    assert refused(rows(of(path))) == refused(hadoop(of(path), path.read_bytes())) == ["expansion"]


def test_a_line_beyond_the_cap_is_set_aside_with_its_place_and_first_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_files, "MAX_LINE_BYTES", 5000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES + b"x" * 90_000 + b"\n" + line(6) + b"\n")
    for size in (1 << 20, 700, 10_000):  # in parts, too
        parts = [of(path, begin=at, end=at + size) for at in range(0, path.stat().st_size, size)]
        made = [row for part in parts for row in rows(part)]
        assert ids(made) == [1, 2, 3, 4, 5, 6]
        (row,) = [row for row in made if row[FIELD_INDEX["kind"]] == "error"]
        assert (row[FIELD_INDEX["code"]], row[FIELD_INDEX["offset"]]) == (
            "line_too_long",
            len(LINES),
        )
        assert row[FIELD_INDEX["raw_value"]] == b"x" * 1024
        # a replay would take the beginning of a message for a message
        assert read_details(row[FIELD_INDEX["after"]]).is_withheld


def test_an_empty_data_file_is_damaged_wherever_it_is(tmp_path: Path) -> None:
    for name, codes in {
        "a.parquet": ["malformed_file"],
        "a.avro": ["malformed_file"],
        "a.jsonl": [],
        "a.jsonl.gz": [],
    }.items():
        (tmp_path / name).touch()
        assert refused(rows(of(tmp_path / name))) == codes
        # Spark returns no row of an empty file
        assert refused(rows(Piece(f"s3a://bucket/{name}", name, 0))) == codes


def test_a_line_that_hadoop_left_out_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.touch()
    data = LINES + b"x" * 90_000 + b"\n" + line(6) + b"\n"
    piece = Piece(str(path), "a.jsonl", len(data))
    parts = [*LINES.rstrip().split(b"\n"), line(6)]
    told = ((one, str(path), len(data)) for one in parts)
    made = [
        row
        for _, found in chunk_rows(FileReader(builder(), None), {str(path): piece}, told)
        for row in found
    ]
    assert ids(made) == [1, 2, 3, 4, 5, 6]
    assert refused(made) == ["line_too_long"]
    for whole in (LINES, LINES.rstrip(), b"\xef\xbb\xbf" + LINES):
        size = len(whole)
        parts = whole.removeprefix(b"\xef\xbb\xbf").rstrip().split(b"\n")  # as Hadoop does
        told = ((one, str(path), size) for one in parts)
        reader = FileReader(builder(), None)
        piece = Piece(str(path), "a.jsonl", size)
        made = [row for _, found in chunk_rows(reader, {str(path): piece}, told) for row in found]
        assert (ids(made), refused(made)) == ([1, 2, 3, 4, 5], [])


@pytest.mark.parametrize("size", [1, 2, 3, 1 << 20])
def test_chunks_are_the_bytes_that_they_were(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "_BLOCK", size)
    data = b"a\n\n\nbc\n" + bytes(range(256)) + b"\n"
    chunks = Chunks(iter(data[:-1].split(b"\n")))
    assert io.BufferedReader(chunks, 16).read() == data
    assert chunks.count == len(data)


def test_what_is_not_there_or_shorter_or_of_another_kind_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    gone = Piece(str(tmp_path / "gone.jsonl"), "gone.jsonl", 5)
    outside = of(path, required_folder=str(tmp_path / "in"))
    xz = tmp_path / "a.jsonl.xz"
    xz.write_bytes(b"x")
    for piece in (gone, of(path, size=10_000), outside, of(xz), of(path, rejection="we may not")):
        assert refused(rows(piece)) == ["unreadable_file"]

    def closed(*_: object) -> Iterator[bytes]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", closed)
    assert refused(rows(of(path))) == ["unreadable_file"]


def test_a_part_of_a_file_is_not_set_aside_alone(tmp_path: Path) -> None:
    gone = Piece(str(tmp_path / "gone.jsonl"), "gone.jsonl", 500, begin=100, end=200)
    with pytest.raises(ReadingError, match="does not exist"):
        rows(gone)


def test_a_large_file_is_read_in_parts_unless_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tasks, "PIECE_BYTES", 100)
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    root = Root(str(tmp_path), is_local=True, pattern="")

    def pieces(size: int) -> list[Piece]:
        return file_tasks.pieces_of([File(str(path), size, 0)], root, {}, follow_links=False)

    parts = pieces(len(LINES))
    assert len(parts) == -(-len(LINES) // 100)
    assert ids([row for part in parts for row in rows(part)]) == [1, 2, 3, 4, 5]
    # it became shorter: the whole of it is quarantined, and the next run does not fail at it again
    (whole,) = pieces(10_000)
    assert refused(rows(whole)) == ["unreadable_file"]


def test_an_error_that_may_pass_stops_the_run_and_sets_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    piece, opened, tries = of(path), open, []

    def failing(*arguments: Any, **more: Any) -> Any:
        tries.append(arguments)
        if len(tries) % times:
            raise OSError(5, "Input/output error")
        return opened(*arguments, **more)

    monkeypatch.setattr("builtins.open", failing)
    times = 2  # the second time it goes
    assert ids(rows(piece)) == [1, 2, 3, 4, 5]
    times = 1000
    with pytest.raises(ReadingError, match=r"a\.jsonl: Input/output error"):
        rows(piece)


def test_a_mask_hides_the_beginning_of_a_long_line_too_and_not_the_name_of_a_file() -> None:
    from changelane.errors import DecodeError
    from changelane.message import Message
    from changelane.transforms.mask import Mask

    masked = builder(transforms=(Mask(columns=("id",), method="null"),))
    error = DecodeError("x", code="x")
    row = masked.error_row(Message(b"secret"), error, is_line=True, is_cut=True)
    assert b"secret" not in (row[FIELD_INDEX["raw_value"]] or b"")
    row = masked.error_row(Message(None, None, (), "a"), error, file="/in/a.gz")
    assert read_details(row[FIELD_INDEX["after"]]).is_withheld is False


def test_tasks_have_about_as_much_to_read(tmp_path: Path) -> None:
    small = [Piece(f"/in/{number}", "", 1000) for number in range(1000)]
    tasks = distribute(small, 4)
    assert sorted(one for task in tasks for one in task) == sorted(small)
    assert [len(task) for task in tasks] == [250] * 4
    large = Piece("/in/large", "", 10 * file_tasks.PIECE_BYTES)
    assert min(distribute([*small, large], 2), key=len) == (large,)
    assert distribute([], 4) == [()]
    del tmp_path


# -- data files


def parquet(count: int) -> bytes:
    stream = io.BytesIO()
    table = pa.table({"id": range(count), "note": [f"line\n{number}" for number in range(count)]})
    pq.write_table(table, stream, row_group_size=1_000)
    return stream.getvalue()


def avro(count: int) -> bytes:
    stream = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    fastavro.writer(stream, schema, [{"id": number} for number in range(count)], codec="deflate")
    return stream.getvalue()


def csv(count: int) -> bytes:
    return b"\xef\xbb\xbfid,note\n" + b"".join(b'%d,"a\n,b"\n' % n for n in range(count))


DATA: Any = {"a.parquet": parquet, "a.avro": avro, "a.csv": csv}
ROWS = RowOptions(table="t", keys={"t": ["id"]}, schemas={"t": {"id": "int64"}})


def data_rows(piece: Piece, data: bytes | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a data file on the local file system, or as Hadoop brings its bytes."""
    reader = FileReader(builder(), None, ROWS)
    if data is None:
        return [row for _, sized in reader.rows(piece) for row in sized]
    listed = len(data)
    data = data.removeprefix(b"\xef\xbb\xbf")  # as Hadoop does
    parts = data.split(b"\n")
    parts = parts[:-1] if not parts[-1] else parts
    lines = ((part, piece.path, listed) for part in parts)
    return [row for _, sized in chunk_rows(reader, {piece.path: piece}, lines) for row in sized]


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("buffered", [0, 100_000_000])
def test_a_data_file_is_read_the_same_on_every_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, buffered: int
) -> None:
    monkeypatch.setattr(data_file, "MAX_BUFFERED_BYTES", buffered)
    path, data = tmp_path / name, DATA[name](2_500)
    path.write_bytes(data)
    for made in (data_rows(of(path)), data_rows(of(path), data)):
        assert ids(made) == list(range(2_500))
        places = [row[FIELD_INDEX["offset"]] for row in made if row[FIELD_INDEX["kind"]] == "data"]
        assert places == list(range(2_500))


@pytest.mark.parametrize("name", DATA)
def test_a_data_file_that_is_cut_is_one_error_and_none_of_its_rows(
    tmp_path: Path, name: str
) -> None:
    path, data = tmp_path / name, DATA[name](5_000)
    path.write_bytes(data[:-3])
    for made in (data_rows(of(path)), data_rows(of(path), data[:-3])):
        assert refused(made) == ["malformed_file"]
        (row,) = made
        assert read_details(row[FIELD_INDEX["after"]]).file == str(path)


def test_a_data_file_that_grew_is_read_as_it_was_listed(tmp_path: Path) -> None:
    for name, make in DATA.items():
        path = tmp_path / name
        path.write_bytes(make(10))
        piece = of(path)
        path.write_bytes(make(10) + make(5))
        assert ids(data_rows(piece)) == list(range(10))


def test_the_first_messages_of_a_data_file_are_records(tmp_path: Path) -> None:
    for name, make in DATA.items():
        path = tmp_path / name
        path.write_bytes(make(10))
        lines = file_reader.first_lines(of(path), 3, ROWS)
        assert [read_record(line).offset for line in lines] == [0, 1, 2]
    with pytest.raises(DecodeError):
        file_reader.first_lines(of(tmp_path / "a.parquet"), 3, None)


def test_a_data_file_is_one_task_however_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tasks, "is_readable", lambda _: True)
    size = file_tasks.PIECE_BYTES * 3
    files = [File(f"/in/a{ending}", size, 0) for ending in (".jsonl", ".parquet", ".avro", ".csv")]
    pieces = file_tasks.pieces_of(files, Root("/in", True, ".*"), {}, follow_links=True)
    assert [piece.path for piece in pieces if piece.is_whole_file] == [
        "/in/a.parquet",
        "/in/a.avro",
        "/in/a.csv",
    ]
    assert len(pieces) == 6


def test_a_data_file_that_changes_between_both_passes_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_file, "MAX_BUFFERED_BYTES", 0)
    path, data = tmp_path / "a.csv", csv(25_000)
    path.write_bytes(data)
    rows = FileReader(builder(), None, ROWS).rows(of(path))
    next(rows)
    path.write_bytes(data[:-9] + b",,,,,,,,\n")
    with pytest.raises(ReadingError, match="CSV file"):
        list(rows)
