# SPDX-License-Identifier: Apache-2.0
"""Files of messages: values and records, compression, and what can be wrong with them."""

import bz2
import gzip
import io
import os
import stat
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from changelane.conversion import message_files
from changelane.conversion.compression import FREE_EXPANSION
from changelane.conversion.message_files import (
    LineFormat,
    Lines,
    line_of,
    open_input,
    open_output,
    raw_lines,
)
from changelane.errors import ConfigError, DecodeError, EncodeError
from changelane.message import Message


def read(data: bytes, form: LineFormat | None = None) -> list:
    return [line.content for line in Lines(io.BytesIO(data), form)]


def codes(data: bytes, form: LineFormat | None = None) -> list:
    return [line.content.code for line in Lines(io.BytesIO(data), form) if failed(line)]


def failed(line: message_files.Line) -> bool:
    return isinstance(line.content, DecodeError)


# -- lines --------------------------------------------------------------------------------------


def test_a_line_of_values_is_the_value_of_a_message():
    assert read(b'{"a":1}\n{"a":2}\n') == [Message(b'{"a":1}'), Message(b'{"a":2}')]


def test_the_last_line_needs_no_line_feed():
    assert read(b'{"a":1}\n{"a":2}') == [Message(b'{"a":1}'), Message(b'{"a":2}')]


def test_an_empty_file_holds_no_messages():
    assert read(b"") == []
    assert read(b"\n\n  \n\t\n") == []


def test_blank_lines_are_skipped_and_counted():
    lines = list(Lines(io.BytesIO(b'\n \n{"a":1}\n\n{"a":2}\n')))
    assert [line.number for line in lines] == [3, 5]


def test_lines_end_with_a_line_feed_only():
    # U+2028, U+0085, form feed and carriage return are content.
    value = '{"a":"x\u2028y\u0085z"}\x0c\r'.encode()
    assert [line.raw for line in Lines(io.BytesIO(value + b"\n{}\n"))] == [value, b"{}"]


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    assert read(b'\xef\xbb\xbf{"a":1}\n') == [Message(b'{"a":1}')]


def test_a_line_of_ten_megabytes_is_fine():
    value = b'{"a":"' + b"x" * 10_000_000 + b'"}'
    assert read(value + b"\n{}\n") == [Message(value), Message(b"{}")]


def test_a_line_beyond_the_limit_is_refused_and_never_held(monkeypatch):
    monkeypatch.setattr(message_files, "MAX_LINE_BYTES", 100)
    data = b"x" * 99 + b"\n" + b"y" * 100 + b"\n" + b"z" * 5_000_000 + b"\n{}\n"
    lines = list(Lines(io.BytesIO(data)))
    assert [(line.number, failed(line)) for line in lines] == [
        (1, False),
        (2, False),
        (3, True),
        (4, False),
    ]
    assert lines[2].content.code == "line_too_long"
    starts = [(line.start, line.is_too_long) for line in raw_lines(io.BytesIO(data))]
    assert starts == [(0, False), (100, False), (201, True), (5_000_202, False)]
    (last,) = raw_lines(io.BytesIO(b"x" * 101))  # without a line feed, one byte too long
    assert (last.start, len(last.raw), last.is_too_long) == (0, 100, True)


class Pipe(io.RawIOBase):
    """A pipe whose reads return the written pieces one by one."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        if not self._pieces:
            return 0
        piece = self._pieces[0][: len(buffer)]
        self._pieces[0] = self._pieces[0][len(piece) :]
        if not self._pieces[0]:
            del self._pieces[0]
        buffer[: len(piece)] = piece
        return len(piece)


@given(st.lists(st.text("ab\n ").map(str.encode)), st.integers(2, 9), st.integers(1, 9))
def test_the_reads_of_a_pipe_do_not_change_the_lines(pieces, most_bytes, buffer_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_files, "MAX_LINE_BYTES", most_bytes)
        pipe = io.BufferedReader(Pipe(list(pieces)), buffer_bytes)
        lines = [(line.number, line.raw, failed(line)) for line in Lines(pipe, LineFormat.VALUE)]
        expected = [
            (number, line.raw, line.is_too_long)
            for number, line in enumerate(raw_lines(io.BytesIO(b"".join(pieces))), 1)
            if line.is_too_long or line.raw.strip()
        ]
    assert lines == expected


def test_a_block_ends_at_the_last_line_that_has_arrived():
    pipe = io.BufferedReader(Pipe([b"a\nb\nc", b"d\ne", b"", b"f"]))
    assert [block.raw for block in Lines(pipe).blocks()] == [[b"a", b"b"], [b"cd"], [b"ef"]]


# -- records ------------------------------------------------------------------------------------


def test_records_are_recognised_by_topic_and_value():
    assert message_files.line_format_of(b'{"topic":"t","value":"x"}') is LineFormat.RECORD
    assert message_files.line_format_of(b'{"topic":"t","value":null}') is LineFormat.RECORD
    assert (
        message_files.line_format_of(b'{"topic":null,"value_base64":"AA=="}') is LineFormat.RECORD
    )
    assert message_files.line_format_of(b'{"topic":"t","payload":"x"}') is LineFormat.VALUE
    assert message_files.line_format_of(b'{"value":"x"}') is LineFormat.VALUE
    assert message_files.line_format_of(b"[1]") is None
    assert message_files.line_format_of(b'{"topic"') is None


def test_the_first_object_settles_the_form_of_the_whole_file():
    records = b'nonsense\n{"topic":"t","value":"x"}\n{"op":"c"}\n'
    lines = Lines(io.BytesIO(records))
    contents = [line.content for line in lines]
    assert lines.form is LineFormat.RECORD
    assert contents[0] == Message(b"nonsense")
    assert contents[1] == Message(b"x", topic="t")
    assert contents[2].code == "not_a_record"
    assert contents[2].path == "$.value"


def test_a_record_holds_the_whole_message():
    line = (
        b'{"topic":"t","partition":2,"offset":17,"timestamp":1795248615183,"key":"k",'
        b'"value":"v","headers":[["a","1"],["a",null],["b",{"base64":"/w=="}]]}'
    )
    assert read(line) == [
        Message(b"v", b"k", (("a", b"1"), ("a", None), ("b", b"\xff")), "t", 2, 17, 1795248615183)
    ]


def test_headers_may_be_an_object():
    assert read(b'{"topic":"t","value":"v","headers":{"a":"1","b":null}}') == [
        Message(b"v", None, (("a", b"1"), ("b", None)), "t")
    ]


def test_a_null_value_is_a_tombstone():
    assert read(b'{"topic":"t","key":"k","value":null}') == [Message(None, b"k", topic="t")]


def test_bytes_come_as_base64():
    line = b'{"topic":"t","key_base64":"AP8=","value_base64":"/wA="}'
    assert read(line) == [Message(b"\xff\x00", b"\x00\xff", topic="t")]


def test_further_fields_of_a_record_are_ignored():
    line = b'{"line":3,"reason":"x","topic":null,"value":"v","broker":1}'
    assert read(line) == [Message(b"v")]


@pytest.mark.parametrize(
    "line",
    [
        b'{"topic":"t"}',
        b'{"topic":"t","value":{"a":1}}',
        b'{"topic":"t","value":"a","value_base64":"AA=="}',
        b'{"topic":"t","value_base64":"not base64!"}',
        b'{"topic":"t","value_base64":null}',
        b'{"topic":"t","value":"v","partition":"0"}',
        b'{"topic":"t","value":"v","partition":1.5}',
        b'{"topic":"t","value":"v","offset":1e400}',
        b'{"topic":1,"value":"v"}',
        b'{"topic":"t","value":"v","headers":"a"}',
        b'{"topic":"t","value":"v","headers":[["a"]]}',
        b'{"topic":"t","value":"v","headers":[["a",1]]}',
        b'{"topic":"t","value":"v","headers":{"a":{"base64":1}}}',
        b'{"topic":"t","value":"\xff"}',
        b'{"topic":"t","value":"\\ud800"}',
        b'{"topic":"t","value":NaN}',
        b'{"topic":"t","value":"v"',
        b"[" * 100_000,
        b"\x1f\x8b\x08",
        b"null",
        b"17",
    ],
)
def test_a_line_that_is_no_record_is_a_failure_of_that_line(line):
    good = b'{"topic":"t","value":"v"}'
    lines = list(Lines(io.BytesIO(good + b"\n" + line + b"\n" + good), LineFormat.RECORD))
    assert [failed(found) for found in lines] == [False, True, False]
    assert lines[1].number == 2


texts = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])).map(str.encode))
messages = st.builds(
    Message,
    st.one_of(st.none(), st.binary()),
    st.one_of(st.none(), st.binary()),
    st.lists(st.tuples(st.text(), st.one_of(texts, st.binary()))).map(tuple),
    st.one_of(st.none(), st.text()),
    st.one_of(st.none(), st.integers(0, 2**31 - 1)),
    st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    st.one_of(st.none(), st.integers(-1, 2**53)),
)


@given(messages)
def test_every_message_survives_as_a_record(message):
    line = line_of(message, LineFormat.RECORD)
    assert line.count(b"\n") == 1
    assert read(line) == [message]


def test_a_tombstone_has_no_line_of_values():
    assert line_of(Message(None, b"k"), LineFormat.VALUE) is None


def test_a_value_with_a_line_feed_cannot_be_a_line():
    with pytest.raises(EncodeError, match="contains a line feed"):
        line_of(Message(b"a\nb"), LineFormat.VALUE)
    assert read(line_of(Message(b"a\nb"), LineFormat.RECORD)) == [Message(b"a\nb")]


# -- reading ------------------------------------------------------------------------------------


def content(path) -> bytes:
    with open_input(str(path)) as opened:
        return opened.stream.read()


def test_gzip_zstd_and_bzip2_are_detected_by_the_suffix(tmp_path):
    data = b'{"a":1}\n' * 10_000
    compressed = {
        "a.jsonl": data,
        "a.jsonl.gz": gzip.compress(data),
        "a.GZ": gzip.compress(data),
        "a.jsonl.zst": zstandard.compress(data),
        "a.zstd": zstandard.compress(data),
        "a.jsonl.bz2": bz2.compress(data),
    }
    for name, held in compressed.items():
        (tmp_path / name).write_bytes(held)
        assert content(tmp_path / name) == data


def test_members_that_follow_each_other_are_one_file(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n") + b"\0" * 5000)
    (tmp_path / "a.zst").write_bytes(zstandard.compress(b"a\n") + zstandard.compress(b"b\n"))
    assert content(tmp_path / "a.gz") == content(tmp_path / "a.zst") == b"a\nb\n"


def test_an_empty_compressed_file_holds_nothing(tmp_path):
    for name in ("a.gz", "a.zst"):
        (tmp_path / name).write_bytes(b"")
        assert content(tmp_path / name) == b""


@pytest.mark.parametrize("ending", ["gz", "zst", "bz2"])
def test_a_truncated_compressed_file_is_reported_at_every_length(tmp_path, ending):
    data = bytes(range(256)) * 20
    compress = {"gz": gzip.compress, "zst": zstandard.compress, "bz2": bz2.compress}
    whole = compress[ending](data)
    path = tmp_path / f"a.{ending}"
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DecodeError) as caught:
            content(path)
        assert caught.value.code == "corrupt_compression"


@pytest.mark.parametrize("ending", ["gz", "zst", "bz2"])
def test_an_uncompressed_file_with_a_suffix_of_a_compression_is_reported(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b'{"plain":"text"}\n')
    with pytest.raises(DecodeError) as caught:
        content(path)
    assert caught.value.code == "corrupt_compression"
    assert "plain" not in caught.value.reason


def test_a_bomb_is_stopped_long_before_it_is_expanded(tmp_path):
    bomb = tmp_path / "bomb.zst"
    compressor = zstandard.ZstdCompressor(level=19).compressobj()
    zeros = bytes(1 << 20)
    with bomb.open("wb") as file:
        for _ in range(1024):
            file.write(compressor.compress(zeros))
        file.write(compressor.flush())
    seen = []
    with open_input(str(bomb)) as opened, pytest.raises(DecodeError) as caught:
        seen.extend(len(part) for part in iter(lambda: opened.stream.read(1 << 20), b""))
    assert caught.value.code == "expansion"
    assert sum(seen) <= 2 * FREE_EXPANSION


def test_much_expansion_of_little_is_fine(tmp_path):
    packed = zlib.compressobj(9, wbits=31)
    data = packed.compress(bytes(10_000_000)) + packed.flush()
    (tmp_path / "a.gz").write_bytes(data)
    assert len(content(tmp_path / "a.gz")) == 10_000_000


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_what_cannot_be_read_is_wrong_use(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot read"), open_input(str(tmp_path / name)):
        pass


# -- writing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst", "out.jsonl.bz2"])
def test_what_is_written_is_read_again(tmp_path, name):
    with open_output(str(tmp_path / name)) as stream:
        stream.write(b"a\n" * 1000)
    assert content(tmp_path / name) == b"a\n" * 1000
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["out.gz", "out.zst", "out.bz2"])
def test_the_same_messages_give_the_same_file(tmp_path, name):
    written = []
    for _ in range(2):
        with open_output(str(tmp_path / name)) as stream:
            stream.write(b"a\n" * 1000)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("name", ["out", "out.gz", "out.zst"])
def test_a_failed_run_leaves_the_old_file_alone(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"old")

    def fail_half_way():
        with open_output(str(path)) as stream:
            stream.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_behind_a_link_is_written_not_the_link(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with open_output(str(tmp_path / "link")) as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_device_is_written_and_not_replaced():
    with open_output("/dev/null") as stream:
        stream.write(b"new")
    with open("/dev/null", "rb") as device:  # noqa: PTH123 - a device, not a path of ours
        assert stat.S_ISCHR(__import__("os").fstat(device.fileno()).st_mode)


def test_a_new_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").write_bytes(b"")
    with open_output(str(tmp_path / "ours")):
        pass
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("name", ["no/such/folder/out", "."])
def test_what_cannot_be_written_is_wrong_use(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot write"), open_output(str(tmp_path / name)):
        pass


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "out"
    path.touch(0o600)
    with open_output(str(path)) as stream:
        stream.write(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"new"


def test_a_pipe_is_written_directly():
    reading, writing = os.pipe()
    with open_output(f"/dev/fd/{writing}") as stream:
        stream.write(b"x")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"x"
