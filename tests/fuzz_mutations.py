"""Hostile changes by structure: of JSON trees, Parquet tables, CSV, HDF5, archives, pictures, plain bytes, and of the files themselves.

Each mutation takes a generator and a file and changes the file; what kind of mutation fits is decided by what
the file is.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.random import Generator

Mutation = Callable[[Generator, Path], None]

HOSTILE: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        -5,
        1,
        2,
        1e18,
        -1e18,
        10**18,
        10**19,
        10**399,
        1e308,
        5e-324,
        0.5,
        float("nan"),
        float("inf"),
        -float("inf"),
    ),
    *(
        "",
        "x",
        "nan",
        "\0",
        "../../../etc/passwd",
        "/etc/passwd",
        "{x.__class__}",
        "{episode_index:999999999d}",
        "\ud800",
        "é" * 9000,
        "a/b",
        "~root",
    ),
    *(
        [],
        {},
        [[]],
        [0],
        [-6],
        [1_000_000_000],
        [1_000_000_000, 1_000_000_000],
        [None],
        ["a", "a"],
        {"a": {"b": []}},
        [1, "a", None],
        [float("nan")],
    ),
    *([list(range(2000))], {"": ""}, [{}], [[1, 2], [3]], "deg", "float32", "video", "image", "int64"),
)
DEEP = object()
"""Stands for a list in a list in a list ..., which is written as text."""


def pick(rng: Generator, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


# --- JSON ------------------------------------------------------------------------------------------------------------


def places(value: Any, trail: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the trail of every node."""
    found = [trail]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        found += places(child, (*trail, key))
    return found


def changed(rng: Generator, document: Any) -> Any:
    """Return a tree with one node replaced, removed, doubled or deepened; nodes near the top as often as those far down."""
    trails = places(document)
    depth = int(rng.integers(0, 1 + max(map(len, trails))))
    trail = pick(rng, [t for t in trails if len(t) == depth] or trails)
    way = pick(
        rng, ("replace", "replace", "replace", "replace", "remove", "double", "wrap", "number", "rename")
    )
    if not trail:
        return pick(rng, HOSTILE)
    parent = document
    for key in trail[:-1]:
        parent = parent[key]
    key, old = trail[-1], parent[trail[-1]]
    match way:
        case "remove":
            del parent[key]
        case "double" if isinstance(parent, list):
            parent.insert(key, old)
        case "wrap":
            parent[key] = pick(rng, ([old], {"value": old}, str(old), [old] * 3))
        case "number" if isinstance(old, int | float) and not isinstance(old, bool):
            parent[key] = pick(
                rng, (-old, old * 1000, old + 0.5, 1e18, -1, 0, float("nan"), float("inf"), 10**399)
            )
        case "rename" if isinstance(parent, dict):
            parent[str(key)[::-1]] = parent.pop(key)
        case _:
            parent[key] = pick(rng, HOSTILE)
    return document


def text_of(document: Any) -> bytes:
    return json.dumps(document).encode()


def json_tree(rng: Generator, path: Path) -> None:
    document = changed(rng, json.loads(path.read_text()))
    path.write_bytes(text_of(document))


def json_text(rng: Generator, path: Path) -> None:
    """Change the text where a tree cannot say it: a key twice, depth, cut ends, other encodings."""
    text = path.read_text()
    at = int(rng.integers(len(text)))
    path.write_bytes(
        pick(
            rng,
            (
                lambda: text[:at].encode(),
                lambda: (text[:1] + text[1:].replace("}", "," + text[1:-1] + "}", 1)).encode(),
                lambda: b"[" * 100_000,
                lambda: b'{"a":' * 400 + text.encode() + b"}" * 400,
                lambda: text.encode("utf-16"),
                lambda: b"\xff" + text.encode(),
                lambda: text[:at].encode() + b"\0" + text[at:].encode(),
                lambda: text.replace(": ", ": 1e999, ", 1).encode(),
                lambda: b"",
                lambda: b"null",
                lambda: b'{"a":' + b"9" * 6000 + b"}",
            ),
        )()
    )


def json_line(rng: Generator, path: Path) -> None:
    lines = path.read_text().splitlines()
    k = int(rng.integers(len(lines)))
    match pick(rng, ("tree", "tree", "tree", "drop", "double", "garbage", "swap")):
        case "tree":
            lines[k] = json.dumps(changed(rng, json.loads(lines[k])))
        case "drop":
            del lines[k]
        case "double":
            lines.insert(k, lines[k])
        case "garbage":
            lines[k] = pick(
                rng,
                ("{", "\0", "[" * 5000, "NaN", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")),
            )
        case _:
            lines[0], lines[k] = lines[k], lines[0]
    path.write_text("\n".join(lines) + "\n")


def many_lines(rng: Generator, path: Path) -> None:
    """Write 300,000 lines where there were a few."""
    lines = path.read_text().splitlines()
    row = json.loads(lines[-1])
    for key in ("episode_index", "task_index", "_index"):
        if isinstance(row, dict) and key in row:
            with path.open("w") as stream:
                stream.writelines(json.dumps({**row, key: k}) + "\n" for k in range(300_000))
            return
    path.write_text((lines[-1] + "\n") * 300_000)


# --- Parquet ---------------------------------------------------------------------------------------------------------


def parquet_column(rng: Generator, path: Path) -> None:
    """Drop, double, rename, retype, empty or poison one column."""
    table = pq.read_table(path)
    name = pick(rng, table.column_names)
    at, n, column = table.column_names.index(name), table.num_rows, table[name]
    other = pick(rng, table.column_names)

    def put(values: Any, kind: pa.DataType | None = None) -> pa.Table:
        return table.set_column(
            at, name, pa.array(values, kind) if not isinstance(values, pa.Array | pa.ChunkedArray) else values
        )

    ways: tuple[Callable[[], pa.Table], ...] = (
        lambda: table.drop_columns([name]),
        lambda: table.append_column(name, column),
        lambda: table.rename_columns([other if c == name else c for c in table.column_names]),
        lambda: table.slice(0, 0),
        lambda: table.slice(0, 1),
        lambda: pa.concat_tables([table, table]),
        lambda: table.take(pa.array(rng.permutation(n))),
        lambda: put([None] * n, pa.null()),
        lambda: put([None if k == n // 2 else v for k, v in enumerate(column.to_pylist())], column.type),
        lambda: put(["text"] * n),
        lambda: put([b"\xff\xfe"] * n),
        lambda: put(
            [pick(rng, (1e18, -1e18, 1e308, float("nan"), float("inf"), -1.0, 0.0))] * n, pa.float64()
        ),
        lambda: put([int(pick(rng, (0, -1, -5, 2**62, 10**18, 7)))] * n, pa.int64()),
        lambda: put([[1.0] * (k % 3) for k in range(n)], pa.list_(pa.float32())),
        lambda: put([[]] * n, pa.list_(pa.float32())),
        lambda: put([[[1.0]]] * n),
        lambda: put([{"a": 1}] * n),
        lambda: put([True] * n),
        lambda: put([[1.0] * 5000] * n, pa.list_(pa.float32())),
        lambda: put([[None] * 6] * n, pa.list_(pa.float32())),
        lambda: put([0] * n, pa.timestamp("ns")),
        lambda: put(pa.array(np.zeros(n, dtype=np.float16))),
        lambda: put([2**63 + 5] * n, pa.uint64()),
        lambda: put(["a"] * n).set_column(at, name, pa.array(["a"] * n).dictionary_encode()),
    )
    pq.write_table(pick(rng, ways)(), path)


def parquet_cell(rng: Generator, path: Path) -> None:
    """Poison one number: where an episode lies, how long it is, when a frame was."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    if not rows:
        return
    row = pick(rng, rows)
    name = pick(rng, table.column_names)
    old = row[name]
    if isinstance(old, list) and old:
        old[int(rng.integers(len(old)))] = pick(rng, (1e18, float("nan"), float("inf"), None, -1.0))
    elif isinstance(old, float):
        row[name] = pick(rng, (1e18, -1e18, float("nan"), float("inf"), None, -1.0, 0.0))
    elif isinstance(old, int) and not isinstance(old, bool):
        row[name] = pick(rng, (0, -1, -5, 10**18, 2**62, None, old + 1))
    else:
        row[name] = (
            None
            if not isinstance(old, str)
            else pick(rng, ("", "\0", "../../x", None, '{"a": "b"}', '{"a": ' + "9" * 400 + "}", "[" * 2000))
        )
    with contextlib.suppress(pa.ArrowInvalid, OverflowError):  # 1e18 in a float32 and the like
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def parquet_bomb(rng: Generator, path: Path) -> None:
    """Declare next to nothing and decode to gigabytes: runs of one value, dictionaries of one long text, or 100,001 columns."""
    way = pick(rng, ("rows", "text", "columns", "wide", "groups"))
    schema = pq.read_schema(path)
    if way == "columns":
        pq.write_table(pa.table({f"c{k}": [1] for k in range(100_001)}), path)
        return
    if way == "wide":
        name = pick(rng, schema.names)
        pq.write_table(
            pa.table(
                {**{n: [0] for n in schema.names}, name: pa.array([np.zeros(70_000_000, dtype=np.float64)])}
            ),
            path,
        )
        return
    if way == "groups":
        pq.write_table(
            pa.table({n: np.zeros(30_000, dtype=np.int64) for n in schema.names[:12]}), path, row_group_size=1
        )
        return
    n = 20_000_000
    values = (
        pa.array(np.zeros(n, dtype=np.int64))
        if way == "rows"
        else pa.DictionaryArray.from_arrays(np.zeros(60_000, dtype=np.int32), ["x" * 900_000])
    )
    table = pa.table({name: values for name in schema.names[: 3 if way == "rows" else 1]})
    with pq.ParquetWriter(path, table.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(3 if way == "rows" else 1):
            writer.write_table(table)


# --- tables of text ----------------------------------------------------------------------------------------------------


def csv_table(rng: Generator, path: Path) -> None:
    lines = [line.split(",") for line in path.read_text().splitlines()]
    k = int(rng.integers(1, len(lines)))
    at = int(rng.integers(len(lines[k])))
    cells = (
        "",
        "1e18",
        "nan",
        "inf",
        "-inf",
        "9" * 400,
        "\0",
        '"',
        "[",
        "[]",
        "[1,[2]]",
        '"[' + "9" * 400 + ']"',
        "é",
        "0.5",
        "-1",
        "<missing>",
        "=1+1",
        "1e400",
    )
    match pick(
        rng,
        ("cell", "cell", "column", "drop", "twice", "ragged", "header", "shuffle", "empty", "long", "latin"),
    ):
        case "cell":
            lines[k][at] = pick(rng, cells)
        case "column":
            cell = pick(rng, cells)
            for row in lines[1:]:
                row[min(at, len(row) - 1)] = cell
        case "drop":
            lines = [row[:at] + row[at + 1 :] for row in lines]
        case "twice":
            lines = [[*row, row[min(at, len(row) - 1)]] for row in lines]
        case "ragged":
            lines[k] = lines[k] + ["x"]
        case "header":
            lines[0] = [pick(rng, cells) for _ in lines[0]]
        case "shuffle":
            lines = [lines[0], *(lines[1:][int(i)] for i in rng.permutation(len(lines) - 1))]
        case "empty":
            lines = pick(rng, ([], lines[:1], lines[:2], [[""]] * 5))
        case "long":
            lines[k][at] = "x" * 300_000
        case _:
            path.write_bytes(b"\xe9\xff" + path.read_bytes())
            return
    path.write_text("\n".join(",".join(row) for row in lines) + "\n")


def csv_bomb(rng: Generator, path: Path) -> None:
    """Write three million rows, 100,001 columns, or a value of its own in each of 400,000 rows."""
    header, *rest = path.read_text().splitlines()
    way = pick(rng, ("rows", "columns", "distinct"))
    if way == "columns":
        path.write_text(
            header
            + ","
            + ",".join(f"c{k}" for k in range(100_001))
            + "\n"
            + ((rest[0] + ",1" * 100_001 + "\n") if rest else "")
        )
    elif way == "rows":
        path.write_text(header + "\n" + (rest[0] + "\n") * min(3_000_000, (200 << 20) // (1 + len(rest[0]))))
    else:
        n = header.count(",") + 1
        path.write_text(
            header + "\n" + "".join(",".join(f"v{k}" for _ in range(n)) + "\n" for k in range(400_000))
        )


# --- HDF5 --------------------------------------------------------------------------------------------------------------


def hdf5_tree(rng: Generator, path: Path) -> None:
    """Replace one table, link or attribute of a file."""
    import h5py

    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        name = pick(rng, names)
        old = file[name]
        shape = getattr(old, "shape", (3,))
        n = shape[0] if shape else 1

        def put(**kwargs: Any) -> None:
            del file[name]
            file.create_dataset(name, **kwargs)

        def link(target: Any) -> None:
            del file[name]
            file[name] = target

        def virtual() -> None:
            layout = h5py.VirtualLayout(shape=(n, 7), dtype="f8")
            layout[:] = h5py.VirtualSource("/dev/zero", "x", shape=(n, 7))
            del file[name]
            file.create_virtual_dataset(name, layout)

        ways: tuple[Callable[[], Any], ...] = (
            lambda: file.__delitem__(name),
            lambda: put(shape=(1_000_000_000, 14), dtype="f8", chunks=(1000, 14)),
            lambda: put(shape=(n, 2_000_000_000), dtype="u1", chunks=(1, 65536)),
            lambda: put(shape=(n, 20_000, 20_000, 3), dtype="u1", chunks=(1, 100, 100, 3)),
            lambda: put(shape=(0, 7), dtype="f8"),
            lambda: put(shape=(n, 0), dtype="f8"),
            lambda: put(shape=(), dtype="f8"),
            lambda: put(data=h5py.Empty("f8")),
            lambda: put(data=np.full((n, 7), np.nan)),
            lambda: put(data=[b"text"] * n),
            lambda: put(data=np.zeros(n, dtype=[("a", "f4"), ("b", "i4")])),
            lambda: put(data=np.zeros((n, 7), dtype=complex)),
            lambda: put(data=np.zeros((n, 7), dtype="f2")),
            lambda: put(data=np.full((n, 7), 2**64 - 1, dtype="u8")),
            lambda: put(data=["é" * k for k in range(n)]),
            lambda: put(data=np.zeros((n + 3, 7))),
            lambda: link(h5py.ExternalLink("/dev/zero", "/x")),
            lambda: link(h5py.ExternalLink("../fifo", "/x")),
            lambda: link(h5py.SoftLink("/nowhere")),
            lambda: link(h5py.SoftLink(f"/{name}")),
            lambda: link(file["/"]),
            lambda: link(np.dtype("f4")),
            virtual,
            lambda: put(shape=(n, 7), dtype="f8", external=[("/dev/zero", 0, 56 * max(1, n))]),
            lambda: file.attrs.update(
                {"fps": pick(rng, (0.0, -1.0, np.nan, np.inf, 1e300, "x", [1, 2], np.zeros(3)))}
            ),
            lambda: file.get("data", file).attrs.update(
                {"env_args": pick(rng, ("[", "[]", "{}", '{"env_kwargs": []}', "9" * 500, 3.0))}
            ),
        )
        pick(rng, ways)()


# --- archives, pictures, videos ------------------------------------------------------------------------------------------


def png_bomb(side: int = 60_000) -> bytes:
    """Return a PNG of a few KB that says it holds billions of pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def picture(rng: Generator, path: Path) -> None:
    from PIL import Image

    def saved(kind: str, size: tuple[int, int] = (24, 16), mode: str = "RGB") -> bytes:
        buffer = io.BytesIO()
        Image.new(mode, size).save(buffer, format=kind)
        return buffer.getvalue()

    jpeg = bytearray(path.read_bytes())
    start = jpeg.find(b"\xff\xc0")
    if start > 0:
        jpeg[start + 5 : start + 9] = b"\xff\xff\xff\xff"
    path.write_bytes(
        pick(
            rng,
            (
                lambda: png_bomb(),
                lambda: png_bomb(12_000),
                lambda: bytes(jpeg),
                lambda: saved("PNG", (9000, 10)),
                lambda: saved("PNG", (1, 1)),
                lambda: saved("GIF"),
                lambda: saved("TIFF"),
                lambda: saved("PNG", mode="I;16"),
                lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n",
                lambda: b"text",
                lambda: b"",
            ),
        )()
    )


def archive(rng: Generator, path: Path) -> None:
    """Rewrite a zip: entries gone, doubled, larger than they say, or arrays that declare billions of numbers."""
    with zipfile.ZipFile(path) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    name = pick(rng, sorted(entries))
    header = io.BytesIO()
    shape = pick(rng, ((1_000_000_000, 1_000_000), (0,), (10**18,), (5,)))
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    deflate = zipfile.ZIP_DEFLATED
    match pick(rng, ("gone", "array", "zeros", "garbage", "text", "renamed")):
        case "gone":
            del entries[name]
        case "array":
            entries[name] = header.getvalue()
        case "zeros":
            with zipfile.ZipFile(path, "w", deflate) as new:
                for key, data in entries.items():
                    with new.open(key, "w", force_zip64=True) as stream:
                        stream.write(data)
                        for _ in range(1200 if key == name else 0):
                            stream.write(bytes(1 << 20))
            return
        case "garbage":
            entries[name] = bytes(rng.integers(0, 256, 200, dtype=np.uint8))
        case "text":
            entries[name] = b"[]"
        case _:
            entries["../" + name] = entries.pop(name)
    with zipfile.ZipFile(path, "w", pick(rng, (deflate, zipfile.ZIP_STORED))) as new:
        for key, data in entries.items():
            new.writestr(key, data)


def safetensors_header(rng: Generator, path: Path) -> None:
    """Let the header lie about sizes, types and places."""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + n])
    text = text_of(changed(rng, header))
    size = pick(rng, (len(text), len(text), 2**60, 0, len(data) * 2))
    path.write_bytes(struct.pack("<Q", size) + text + data[8 + n :])


def play_list(rng: Generator, path: Path) -> None:
    """Put a text in a video's place that names other files and addresses."""
    path.write_bytes(
        pick(
            rng,
            (
                b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///dev/zero\n",
                b"ffconcat version 1.0\nfile /dev/zero\n",
                b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n",
                b"RIFF\xff\xff\xff\xffAVI LIST",
                b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom\xff\xff\xff\xffmoov",
            ),
        )
    )


# --- bytes and files -------------------------------------------------------------------------------------------------------


def bytes_changed(rng: Generator, path: Path) -> None:
    data = bytearray(path.read_bytes())
    if not data:
        return
    at = int(rng.integers(len(data)))
    head = int(rng.integers(min(len(data), 256)))
    match pick(rng, ("cut", "head", "head", "tail", "zero", "flip", "empty", "more", "half")):
        case "cut":
            del data[at:]
        case "head":
            for _ in range(int(rng.integers(1, 6))):
                data[int(rng.integers(min(len(data), 256)))] = int(rng.integers(256))
        case "tail":
            for _ in range(int(rng.integers(1, 6))):
                data[-1 - int(rng.integers(min(len(data), 4000)))] = int(rng.integers(256))
        case "zero":
            data[head : head + 64] = bytes(len(data[head : head + 64]))
        case "flip":
            for _ in range(20):
                data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        case "empty":
            data = bytearray()
        case "more":
            data += data[:2000]
        case _:
            del data[: len(data) // 2]
    path.write_bytes(bytes(data))


def not_a_file(rng: Generator, path: Path) -> None:
    """Put something else in a file's place: a pipe, a socket, a folder, links."""
    path.unlink()
    match pick(rng, ("pipe", "socket", "folder", "loop", "dangling", "device", "zero", "outside")):
        case "pipe":
            os.mkfifo(path)
        case "socket":
            short = Path(f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY)}") / path.name
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as made:
                made.bind(str(short)[:100])
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("nowhere")
        case "device":
            path.symlink_to("/dev/tty")
        case "zero":
            path.symlink_to("/dev/zero")
        case _:
            path.symlink_to("/etc/passwd")


def folder_of_links(rng: Generator, path: Path) -> None:
    """Let a folder hold itself, and names that are no UTF-8."""
    match pick(rng, ("itself", "bytes", "pipe", "control")):
        case "itself":
            (path.parent / "again").symlink_to(path.parent, target_is_directory=True)
        case "bytes":
            Path(os.fsdecode(os.fsencode(path.parent) + b"/\xff\xfe" + os.fsencode(path.suffix))).write_bytes(
                path.read_bytes()
            )
        case "pipe":
            os.mkfifo(path.parent / f"pipe{path.suffix}")
        case _:
            (path.parent / f"\x1b[2J\n{path.suffix}").write_bytes(path.read_bytes())


ANY: tuple[Mutation, ...] = (bytes_changed, not_a_file, folder_of_links)
BY_SUFFIX: dict[str, tuple[Mutation, ...]] = {
    ".json": (json_tree, json_tree, json_tree, json_tree, json_text),
    ".jsonl": (json_line, json_line, json_line),
    ".catalog": (json_line, json_line, json_line),
    ".parquet": (parquet_column, parquet_column, parquet_cell, parquet_cell),
    ".csv": (csv_table, csv_table, csv_table),
    ".hdf5": (hdf5_tree, hdf5_tree, hdf5_tree),
    ".npz": (archive, archive),
    ".pt": (archive, archive),
    ".safetensors": (safetensors_header, safetensors_header),
    ".jpg": (picture,),
    ".mp4": (play_list, bytes_changed),
}
HEAVY: dict[str, tuple[Mutation, ...]] = {
    ".jsonl": (many_lines,),
    ".catalog": (many_lines,),
    ".parquet": (parquet_bomb, parquet_bomb),
    ".csv": (csv_bomb, csv_bomb),
}
"""What takes seconds to write; for the thorough suite."""


def mutate(rng: Generator, path: Path, *, heavy: bool) -> str:
    """Change one file in a way that fits it, and return which."""
    suffix = (
        ".jsonl"
        if path.name == "manifest.json"
        else ".bytes"
        if path.name == "model.safetensors"
        else path.suffix
    )
    ways = (*BY_SUFFIX.get(suffix, (bytes_changed,)), pick(rng, ANY))
    if heavy and path.suffix in HEAVY and rng.random() < 0.25:
        ways = HEAVY[path.suffix]
    way: Mutation = pick(rng, ways)
    way(rng, path)
    return way.__name__
