"""Every stored picture is verified by the decoder that converts it: all that are damaged are named, and what is called clean converts."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from format_builders import colours, jpeg, write_act, write_tub
from remedies import thinned
from simgap.checks.data.dataset import Severity, check_data
from simgap.episodes.edit.convert import Target, convert_dataset
from simgap.episodes.formats.keymap import KeyMap
from simgap.episodes.reader import open_dataset
from simgap.errors import DataError
from test_data_clock import case

PICTURE = colours(3, 20)[7]


def saved(kind: str, mode: str = "RGB", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PICTURE).convert(mode).save(buffer, format=kind, **options)
    return buffer.getvalue()


def wide() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full(PICTURE.shape[:2], 4000, dtype=np.uint16)).save(buffer, format="PNG")
    return buffer.getvalue()


WHOLE = jpeg(PICTURE)
DAMAGED: dict[str, bytes | None] = {
    "cut": WHOLE[: len(WHOLE) // 2],
    "empty": b"",
    "missing": None,
    "no picture": b"not a picture at all",
    "filled up with zeros": WHOLE[: len(WHOLE) - 60] + bytes(60),
    "another size": jpeg(PICTURE[:8, :8]),
    "16 bits": wide(),
    "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 9000\n",
}
READABLE = {
    "grey": saved("JPEG", "L"),
    "a PNG named jpg": saved("PNG"),
    "with alpha": saved("PNG", "RGBA"),
    "palette": saved("PNG", "P"),
    "progressive": saved("JPEG", progressive=True, quality=90),
    "CMYK": saved("JPEG", "CMYK"),
    "padded behind its end": WHOLE + bytes(300),
}


def put(root: Path, record: int, data: bytes | None) -> None:
    path = root / "images" / f"{record}_cam_image_array_.jpg"
    path.unlink()
    if data is not None:
        path.write_bytes(data)


@pytest.mark.parametrize("how", thinned(DAMAGED, ("cut", "missing", "filled up with zeros")))
def test_a_damaged_picture_is_named_wherever_it_is_and_the_conversion_agrees(
    how: str, tmp_path: Path
) -> None:
    write_tub(tmp_path / "t")
    for record in (0, 13):
        put(tmp_path / "t", record, DAMAGED[how])
    report = check_data(tmp_path / "t")
    finding = next(f for f in report.findings if f.code == "damaged_pictures")
    assert finding.severity is Severity.FAULT
    assert finding.numbers["records"] == [0, 13]
    assert "damaged_videos" not in report.codes()
    with pytest.raises(DataError):
        convert_dataset(open_dataset(tmp_path / "t"), tmp_path / "out", Target(task="drive", codec="png"))


@pytest.mark.parametrize("how", thinned(READABLE, ("a PNG named jpg", "padded behind its end")))
def test_a_picture_of_another_kind_is_read_by_both(how: str, tmp_path: Path) -> None:
    write_tub(tmp_path / "t")
    put(tmp_path / "t", 5, READABLE[how])
    assert "damaged_pictures" not in check_data(tmp_path / "t").codes()
    convert_dataset(open_dataset(tmp_path / "t"), tmp_path / "out", Target(task="drive", codec="png"))


def test_the_printed_remedy_works(tmp_path: Path) -> None:
    write_tub(tmp_path / "t")
    put(tmp_path / "t", 3, b"")
    remedy = next(f.remedy for f in check_data(tmp_path / "t").findings if f.code == "damaged_pictures")
    record = int(re.findall(r"add (\d+) to deleted_indexes", remedy)[0])
    manifest = tmp_path / "t" / "manifest.json"
    lines = manifest.read_text().splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | {"deleted_indexes": [record]})
    manifest.write_text("\n".join(lines) + "\n")
    assert "damaged_pictures" not in check_data(tmp_path / "t").codes()
    convert_dataset(open_dataset(tmp_path / "t"), tmp_path / "out", Target(task="drive", codec="png"))


def test_both_damaged_pictures_of_the_case_are_listed() -> None:
    report = check_data(case("tub_damaged_pictures"))
    assert next(f for f in report.findings if f.code == "damaged_pictures").numbers["records"] == [41, 123]


def test_progress_counts_every_picture(tmp_path: Path) -> None:
    write_tub(tmp_path / "t")
    calls: list[tuple[int, int]] = []
    check_data(open_dataset(tmp_path / "t"), lambda done, total: calls.append((done, total)))
    assert calls == [(k, 20) for k in range(1, 21)]


def test_a_damaged_picture_in_hdf5_is_named_with_its_frame(tmp_path: Path) -> None:
    write_act(tmp_path / "a" / "episode_0.hdf5", compressed=True)
    write_act(tmp_path / "a" / "episode_1.hdf5", 1, compressed=True)
    with h5py.File(tmp_path / "a" / "episode_1.hdf5", "r+") as file:
        table = file["observations/images/cam_low"]
        table[4, 40:] = np.zeros(table.shape[1] - 40, dtype=np.uint8)
    finding = next(
        f
        for f in check_data(open_dataset(tmp_path / "a", KeyMap(rate_hz=50.0))).findings
        if f.code == "damaged_pictures"
    )
    assert json.loads(json.dumps(finding.numbers["frames"])) == {"cam_low": {"1": [4]}}


CHANGES: list[Callable[[bytes, int], bytes]] = [
    lambda d, k: d[: k % len(d)],
    lambda d, k: d[: k % len(d)] + bytes(len(d) - k % len(d)),
    lambda d, k: d[: k % len(d)] + bytes([d[k % len(d)] ^ 0x55]) + d[k % len(d) + 1 :],
]


@settings(max_examples=8, deadline=None)
@given(change=st.sampled_from(CHANGES), place=st.integers(0, 5000), record=st.integers(0, 11))
def test_what_is_called_clean_converts(
    change: Callable[[bytes, int], bytes], place: int, record: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("t")
    write_tub(root / "t", [("s", 12)])
    put(root / "t", record, change(WHOLE, place))
    is_clean = "damaged_pictures" not in check_data(root / "t").codes()
    try:
        convert_dataset(open_dataset(root / "t"), root / "out", Target(task="drive", codec="png"))
        converts = True
    except DataError:
        converts = False
    assert is_clean is converts
