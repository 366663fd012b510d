"""A canary planted into any kind of file that simgap reads: wherever it holds text, and under every word that could name code."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from canary import MAKER, everywhere

WORDS = (
    "env", "env_name", "maker", "python", "class", "_class", "_target_", "module", "import", "entry_point", "auto_map", "loader", "plugin",
    "function", "callable", "command", "program", "worker", "policy_class", "tokenizer", "model_file", "checkpoint", "url", "file", "script",
)  # fmt: skip
"""Fields under which programs of this kind name what they run."""


def beside(value: Any) -> Any:
    """Return JSON with the words added to every object in it, what is there kept."""
    if isinstance(value, dict):
        return {
            **{word: MAKER for word in WORDS if word not in value},
            **{k: beside(v) for k, v in value.items()},
        }
    return [beside(v) for v in value] if isinstance(value, list) else value


def instead(value: Any) -> Any:
    """Return JSON with the canary in the place of every text that could be a name: long texts may be JSON themselves."""
    return everywhere(value, MAKER)


def envs(value: Any) -> Any:
    """Return JSON with the canary where our own env was named, all else kept."""
    return everywhere(value, MAKER, old="arm-pick")


CHANGES: tuple[Callable[[Any], Any], ...] = (instead, beside, envs)


def plant(file: Path, change: Callable[[Any], Any]) -> bool:
    """Change one file in place; False where it holds nothing that can be changed so."""
    planted = _PLANTERS.get(file.suffix, lambda _, __: False)(file, change)
    return bool(planted)


def _json(file: Path, change: Callable[[Any], Any]) -> bool:
    text = file.read_text()
    try:
        new = json.dumps(change(json.loads(text)))
    except ValueError:  # one value a line, as manifests of tubs are
        new = (
            "\n".join(json.dumps(change(json.loads(line))) for line in text.splitlines() if line.strip())
            + "\n"
        )
    file.write_text(new)
    return new != text


def _csv(file: Path, change: Callable[[Any], Any]) -> bool:
    if change is not instead:
        return False
    first, *rows = file.read_text().splitlines()
    file.write_text("\n".join([first, *(",".join([MAKER] * (first.count(",") + 1)) for _ in rows)]) + "\n")
    return True


def _parquet(file: Path, change: Callable[[Any], Any]) -> bool:
    table = pq.read_table(file)
    told = {k: change(v.decode(errors="replace")) for k, v in (table.schema.metadata or {}).items()}
    columns = [
        pa.array([change(v) for v in c.to_pylist()], c.type) if pa.types.is_string(c.type) else c
        for c in table.columns
    ]
    made = pa.table(columns, names=table.column_names).replace_schema_metadata(
        {**told, **dict.fromkeys(WORDS, MAKER)}
    )
    pq.write_table(made, file)
    return True


def _hdf5(file: Path, change: Callable[[Any], Any]) -> bool:
    import h5py

    with h5py.File(file, "r+") as store:
        places: list[Any] = [store]
        store.visititems(lambda _, item: places.append(item))
        for item in places:
            for name, value in list(item.attrs.items()):
                if isinstance(value, (str, bytes)):
                    item.attrs[name] = _text(value if isinstance(value, str) else value.decode(), change)
            if isinstance(item, h5py.Group):
                for word in (*WORDS, "env_args"):
                    if word not in item.attrs:
                        item.attrs[word] = (
                            json.dumps({"env_name": MAKER, "type": 1, "env_kwargs": {"env": MAKER}})
                            if word == "env_args"
                            else MAKER
                        )
    return True


def _text(text: str, change: Callable[[Any], Any]) -> str:
    try:
        return json.dumps(change(json.loads(text)))
    except ValueError:
        return str(change(text))


def _ledger(file: Path, change: Callable[[Any], Any]) -> bool:
    from simgap.ledger.rows import GENESIS, row_hash
    from simgap.provenance import canonical_json

    raw = sqlite3.connect(file)
    rows, triggers = (
        [list(r) for r in raw.execute(q)]
        for q in (
            "SELECT * FROM rows ORDER BY id",
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'",
        )
    )
    for name, _ in triggers:
        raw.execute(f"DROP TRIGGER {name}")
    raw.execute("DELETE FROM rows")
    previous = GENESIS
    for row in rows:
        row[4] = canonical_json(change(json.loads(row[4])))
        row[6] = previous
        row[7] = previous = row_hash(*row[:7])
        raw.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    for _, sql in triggers:
        raw.execute(sql)
    raw.commit()
    raw.close()
    return True


def _picture(file: Path, change: Callable[[Any], Any]) -> bool:
    """Put a program for Ghostscript in the place of a picture, a playlist in that of a video."""
    if change is instead:
        file.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(mark) (w) file\n%%EOF\n")
    elif change is beside:
        file.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{MAKER}\n#EXT-X-ENDLIST\n")
    else:
        file.write_text(f"ffconcat version 1.0\nfile '{MAKER}'\n")
    return True


_PLANTERS: dict[str, Callable[[Path, Callable[[Any], Any]], bool]] = {
    ".json": _json,
    ".jsonl": _json,
    ".catalog": _json,
    ".catalog_manifest": _json,
    ".csv": _csv,
    ".parquet": _parquet,
    ".hdf5": _hdf5,
    ".db": _ledger,
    ".jpg": _picture,
    ".png": _picture,
    ".mp4": _picture,
}
KINDS_OF_FILE = tuple(_PLANTERS)


def files_of(root: Path) -> Iterator[Path]:
    """Yield one file of each name pattern below a folder that a canary can be planted into: a hundred episodes are read alike."""
    seen: set[tuple[str, ...]] = set()
    for file in sorted([root] if root.is_file() else root.rglob("*")):
        pattern = ("".join("#" if c.isdigit() else c for c in file.name), file.parent.name)
        if (
            file.is_file()
            and not file.is_symlink()
            and file.suffix in _PLANTERS
            and pattern not in seen
            and ".cache" not in file.parts
        ):
            seen.add(pattern)
            yield file
