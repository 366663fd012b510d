"""Inputs that no recorder makes, one kind a case: each ends in one line and an exit code, in bounded time and memory, and touches nothing else."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fuzz_readers import READERS, Case, run_apart, tree, wrong

Change = Callable[[Path], Any]
VERBS: dict[str, Callable[[Path, Path], list[str]]] = {
    "check": lambda root, out: ["data", "check", str(root)],
    "info": lambda root, out: ["data", "info", str(root)],
    "stats": lambda root, out: ["data", "stats", str(root), "--out", str(out / "stats.json")],
    "convert": lambda root, out: [
        "data",
        "convert",
        str(root),
        "--task",
        "x",
        "--workers",
        "0",
        "--out",
        str(out / "converted"),
    ],
}
INFO = "d/meta/info.json"


def text(file: str, content: str | bytes) -> Change:
    return lambda folder: (folder / file).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


def stated(edit: Callable[[dict[str, Any]], Any], file: str = INFO) -> Change:
    def change(folder: Path) -> None:
        value = json.loads((folder / file).read_text())
        edit(value)
        (folder / file).write_text(json.dumps(value))

    return change


def link(file: str, target: str = "") -> Change:
    """Put a link in the place of a file or folder; without a target, one that leads in a circle."""

    def change(folder: Path) -> None:
        path = folder / file
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to(target or path.name)

    return change


def pipe(file: str) -> Change:
    return lambda folder: ((folder / file).unlink(), os.mkfifo(folder / file))


def sparse(file: str) -> Change:
    def change(folder: Path) -> None:
        with (folder / file).open("wb") as stream:
            stream.truncate(4 << 30)

    return change


def many_links(folder: Path) -> None:
    for k in range(20):
        (folder / f"d/data/again{k}").symlink_to(".")


def named(name: str, *, camera: bool = False) -> Change:
    def edit(info: dict[str, Any]) -> None:
        features = info["features"]
        if camera:
            key = next(k for k in features if k.startswith("observation.images."))
            features[f"observation.images.{name}"] = features.pop(key)
        else:
            features["action"]["names"] = [name, *range(len(features["action"]["names"]) - 1)]

    return stated(edit)


def shaped(shape: Any) -> Change:
    return stated(lambda info: info["features"]["action"].update(shape=shape))


def hdf5(edit: Callable[[Any, Path], Any]) -> Change:
    def change(folder: Path) -> None:
        import h5py

        with h5py.File(folder / "demo.hdf5", "r+") as file:
            del file["data/demo_9/actions"]
            edit(file, folder)

    return change


def external_link(file: Any, folder: Path) -> None:
    import h5py

    file["data/demo_9/actions"] = h5py.ExternalLink("/etc/passwd", "/x")


def virtual(file: Any, folder: Path) -> None:
    import h5py

    with h5py.File(folder.parent / "elsewhere.hdf5", "w") as other:
        other["x"] = np.zeros((7, 7))
    layout = h5py.VirtualLayout((7, 7), "f8")
    layout[:] = h5py.VirtualSource(str(folder.parent / "elsewhere.hdf5"), "x", (7, 7))
    file.create_virtual_dataset("data/demo_9/actions", layout)


def bytes_of_elsewhere(file: Any, folder: Path) -> None:
    file.create_dataset("data/demo_9/actions", (7, 7), "f8", external=[("/etc/passwd", 0, 392)])


def cycle(file: Any, folder: Path) -> None:
    import h5py

    file["data/demo_9/actions"] = h5py.SoftLink("/data/demo_9/actions")
    file["data/demo_9/obs/up"] = file["data"]


def huge(file: Any, folder: Path) -> None:
    file.create_dataset("data/demo_9/actions", (7, 10**9), "f8", chunks=(1, 10**6), compression="gzip")


def of_type(kind: Any) -> Callable[[Any, Path], Any]:
    return lambda file, folder: file.create_dataset("data/demo_9/actions", (7, 7), kind)


def deep_attribute(file: Any, folder: Path) -> None:
    file["data/demo_9/actions"] = np.zeros((7, 7))
    file["data"].attrs["env_args"] = "[" * 60_000


def replaced(pattern: str, content: bytes) -> Change:
    return lambda folder: sorted((folder / "d").rglob(pattern))[0].write_bytes(content)


def png_bomb() -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    pack = zlib.compressobj(9)
    body = b"".join(pack.compress(bytes(90_001)) for _ in range(300)) + pack.flush()
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", body)
        + chunk(b"IEND", b"")
    )


def columns(pattern: str, table: Callable[[], pa.Table], **how: Any) -> Change:
    return lambda folder: pq.write_table(table(), sorted((folder / "d").glob(pattern))[0], **how)


def repeated_rows() -> pa.Table:
    return pa.table(
        {"action": pa.DictionaryArray.from_arrays(pa.array(np.zeros(50_000_000, "i4")), pa.array([1.0]))}
    )


PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
DEEP = "[" * 100_000 + "]" * 100_000
OUTSIDE = "../../../../../../../../etc/{chunk_index:03d}{file_index:03d}"
TEMPLATES = ("{a.__class__}", "{0}", "{episode_index:99999999d}", "%s%s")
DEVICES = ("/dev/zero", "/dev/tty", "/proc/self/mem")
DOCUMENTS = (
    ("v30", INFO),
    ("v30", "d/meta/stats.json"),
    ("ours", "d/meta/simgap.json"),
    ("tub", "d/manifest.json"),
    ("v21", "d/meta/episodes.jsonl"),
)
NAMES = ("\x1b[31mred", "a\u202egnp.exe", "\x07\b\r\n", "a" * 100_000, "[bold]x[/bold]", "", "/../x")
HOSTILE: dict[str, tuple[str, Change, Sequence[str]]] = {
    **{
        f"data in {path[:12]!r}": ("v30", stated(lambda i, p=path: i.update(data_path=p)), ())
        for path in (OUTSIDE, "/etc/passwd", "~/x", "a\0b", "a" * 5000)
    },
    **{
        f"video in {p[:12]!r}": ("v30 video", stated(lambda i, p=p: i.update(video_path=p)), ())
        for p in (OUTSIDE, "/etc/passwd")
    },
    **{f"path {path!r}": ("v21", stated(lambda i, p=path: i.update(data_path=p)), ()) for path in TEMPLATES},
    **{
        f"circle at {file}": ("v30", link(file), ())
        for file in (INFO, "d/data", "d/meta", "d/meta/stats.json")
    },
    "a folder that holds itself": ("v30", lambda folder: (folder / "d/data/again").symlink_to(".."), ()),
    "twenty of them": ("v30", many_links, ()),
    **{
        f"{file} is {device}": ("v30", link(file, device), ())
        for file in (INFO, "d/meta/stats.json")
        for device in DEVICES
    },
    "a table is a device": ("trials", link("d/trials.csv", "/dev/random"), ("check",)),
    "HDF5 is a device": ("robomimic", link("demo.hdf5", "/dev/zero"), ()),
    **{
        f"pipe {file}": ("v30", pipe(file), ())
        for file in (INFO, "d/meta/stats.json", "d/meta/tasks.parquet")
    },
    **{
        f"4 GB of nothing in {file}": ("v30", sparse(file), ("check", "convert"))
        for file in (INFO, "d/meta/stats.json", "d/meta/tasks.parquet")
    },
    "4 GB of nothing in a table": ("trials", sparse("d/trials.csv"), ("check",)),
    "4 GB of nothing in HDF5": ("robomimic", sparse("demo.hdf5"), ("check",)),
    **{
        f"{what} in {file}": (kind, text(file, content), ("check",))
        for kind, file in (
            ("v30", INFO),
            ("v30", "d/meta/stats.json"),
            ("ours", "d/meta/simgap.json"),
            ("tub", "d/manifest.json"),
            ("v21", "d/meta/episodes.jsonl"),
        )
        for what, content in (
            ("deep lists", DEEP),
            ("deep objects", '{"a":' * 100_000 + "1" + "}" * 100_000),
            ("400 digits", '{"fps": ' + "9" * 400 + "}"),
            ("an endless exponent", '{"fps": 1e' + "9" * 400 + "}"),
            ("no numbers", '{"fps": NaN, "a": -Infinity}'),
            ("one key twice", '{"fps": 3, "fps": 4}'),
            ("half a character", '{"fps": 30, "robot_type": "\\ud800"}'),
            ("UTF-16", '{"fps": 3}'.encode("utf-16")),
        )
    },
    **{f"a joint called {n[:9]!r}": ("v30", named(n), ()) for n in NAMES},
    **{
        f"a camera called {n[:9]!r}": ("v30 video", named(n, camera=True), ())
        for n in ("\x1b[2J", "a\u202eb", "a" * 3000, "../../../up", "")
    },
    **{
        f"shape {shape!r:.16}": ("v30", shaped(shape), ())
        for shape in ([0], [-6], [10**18], ["6"], [[6]], None, {}, [6] * 70, [True], [6.5])
    },
    **{
        f"{fps!r} fps": ("v30", stated(lambda i, f=fps: i.update(fps=f)), ())
        for fps in (0, -30, 1e308, 1e-308, "30", [30], True)
    },
    "HDF5 that leads to another file": ("robomimic", hdf5(external_link), ()),
    "HDF5 made of another file": ("robomimic", hdf5(virtual), ()),
    "HDF5 whose bytes lie elsewhere": ("robomimic", hdf5(bytes_of_elsewhere), ()),
    "HDF5 in a circle": ("robomimic", hdf5(cycle), ()),
    "HDF5 of 56 GB": ("robomimic", hdf5(huge), ()),
    "HDF5 of text": ("robomimic", hdf5(of_type("S9")), ()),
    "HDF5 of pairs": ("robomimic", hdf5(of_type(np.dtype([("a", "f8"), ("b", "i4")]))), ()),
    "HDF5 of complex numbers": ("robomimic", hdf5(of_type("c16")), ()),
    "HDF5 with a deep attribute": ("robomimic", hdf5(deep_attribute), ()),
    "a video that is a playlist": ("v30 video", replaced("*.mp4", PLAYLIST), ("check", "convert")),
    "a video that names files": (
        "v30 video",
        replaced("*.mp4", b"ffconcat version 1.0\nfile /etc/passwd\n"),
        ("check", "convert"),
    ),
    "a video that names an address": (
        "v30 video",
        replaced("*.mp4", b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n"),
        ("check", "convert"),
    ),
    "a picture of 900 megapixels": ("tub", replaced("*.jpg", png_bomb()), ("check", "convert")),
    "a picture that is a program": (
        "tub",
        replaced("*.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        ("check", "convert"),
    ),
    "a picture that declares too much": (
        "tub",
        replaced("*.jpg", b"P6 99999999 99999999 255\n"),
        ("check", "convert"),
    ),
    "50 million rows in a few bytes": (
        "v30",
        columns("data/**/*.parquet", repeated_rows),
        ("check", "convert"),
    ),
    "800 MB of text": (
        "v30",
        columns(
            "data/**/*.parquet", lambda: pa.table({"action": ["x" * (200 << 20)] * 4}), compression="zstd"
        ),
        ("check", "convert"),
    ),
    "lists in lists": (
        "v30",
        columns("data/**/*.parquet", lambda: pa.table({"action": [[[[[[[1.0]]]]]]]})),
        (),
    ),
    "no columns": ("v30", columns("data/**/*.parquet", lambda: pa.table({})), ()),
    "300,000 episodes": (
        "v30",
        columns(
            "meta/episodes/**/*.parquet",
            lambda: pa.table({"episode_index": np.arange(300_000), "length": np.ones(300_000, "i8")}),
        ),
        ("check", "convert"),
    ),
}
"""What -> the kind of input, what is done to it, and the verbs that read it (all of them where none is named)."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for kind in sorted({kind for kind, _, _ in HOSTILE.values()}):
        folders[kind] = tmp_path_factory.mktemp("built")
        READERS[kind].build(folders[kind])
    return folders


FEW = (
    "data in '../../../../'",
    "circle at d/meta",
    "deep lists in d/meta/info.json",
    "a joint called '\\x1b[31mred'",
    "HDF5 made of another file",
    "a video that is a playlist",
)


@pytest.mark.parametrize(
    "what", [pytest.param(w, marks=() if w in FEW else pytest.mark.slow) for w in HOSTILE]
)
def test_a_hostile_input_ends_in_one_line_and_touches_nothing_else(
    what: str, built: dict[str, Path], tmp_path: Path
) -> None:
    kind, change, verbs = HOSTILE[what]
    for verb in verbs or VERBS:
        place = tmp_path / verb
        shutil.copytree(built[kind], place / "in", symlinks=True)
        change(place / "in")
        out = place / "out"
        out.mkdir()
        argv = [*VERBS[verb](place / "in" / READERS[kind].root, out), "--quiet"]
        case = Case(name=what, argv=argv, folder=place, out=out, before=tree(place / "in"))
        told = run_apart(case)
        assert wrong(case, told) == "", argv
        assert not any(sign in told.err for sign in ("\x1b", "\u202e", "\x07", "root:x:"))
        assert sorted(p.name for p in place.iterdir()) == ["in", "out", "stderr"] or "elsewhere.hdf5" in {
            p.name for p in place.iterdir()
        }


@pytest.mark.parametrize("ranges", [None, [], {"a": 1}, {"a": ["low", 1]}, {"a": [1]}, {"a": {}}])
def test_factor_ranges_that_are_none_are_one_line(ranges: Any) -> None:
    from simgap.envs.factors import FactorRanges
    from simgap.errors import DataError

    with pytest.raises(DataError, match="expected a name, and low and high"):
        FactorRanges.from_json({"name": "nominal", "ranges": ranges})
