"""Statistics: streamed ones are those of the pooled rows, in constant memory, and say nothing where nothing is defined."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from simgap.episodes.statistics.exact import (
    QUANTILES,
    STATISTICS,
    StreamingStatistics,
    column_statistics,
    exact_statistics,
    image_histogram,
    image_statistics,
)
from simgap.episodes.statistics.selection import key_values, order_keys, select
from simgap.errors import DataError

KINDS = [np.float32, np.float64, np.float16, np.int64, np.int16, np.uint8, np.bool_]


def numpy_statistics(rows: NDArray) -> dict[str, NDArray]:  # type: ignore[type-arg]
    table = rows.astype(np.float64)
    levels = dict(zip(QUANTILES, np.quantile(table, list(QUANTILES.values()), axis=0), strict=True))
    return {"min": table.min(0), "max": table.max(0), "mean": table.mean(0), "std": table.std(0), **levels}


def require_equal(found: dict[str, list[float]], rows: NDArray) -> None:  # type: ignore[type-arg]
    assert found["count"] == [len(rows)]
    wanted = numpy_statistics(rows)
    assert set(found) == {*STATISTICS, "count"}
    for name in ("min", "max", *QUANTILES):
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
    scale = np.abs(rows.astype(np.float64)).max(0)
    for name in ("mean", "std"):
        assert (np.abs(np.array(found[name]) - wanted[name]) <= 1e-12 * scale).all(), name


def rows_of(kind: type, n: int, width: int) -> st.SearchStrategy[NDArray]:  # type: ignore[type-arg]
    elements = (
        {"allow_nan": False, "allow_infinity": False, "min_value": -1e4, "max_value": 1e4}
        if issubclass(kind, np.floating)
        else {}
    )
    return npst.arrays(kind, (n, width), elements=npst.from_dtype(np.dtype(kind), **elements))  # type: ignore[arg-type]


@settings(max_examples=60)
@given(data=st.data(), kind=st.sampled_from(KINDS), n=st.integers(1, 40), width=st.integers(1, 3))
def test_streamed_statistics_are_those_of_the_pooled_rows_however_they_come(
    data: st.DataObject, kind: type, n: int, width: int
) -> None:
    rows = data.draw(rows_of(kind, n, width))
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=4)))
    with StreamingStatistics() as whole, StreamingStatistics() as left, StreamingStatistics() as right:
        for batch in np.split(rows, cuts):
            whole.update(batch)
        require_equal(whole.result(), rows)
        left.update(rows[: n // 2])
        right.update(rows[n // 2 :])
        left.merge(right)
        require_equal(left.result(), rows)
        assert right.count == n - n // 2


@settings(max_examples=40)
@given(rows=rows_of(np.float32, 30, 4))
def test_statistics_in_memory_are_numpys(rows: NDArray[np.float32]) -> None:
    require_equal(exact_statistics(rows), rows)
    together = column_statistics({"a": rows[:, :1], "b": rows[:, 1:], "c": rows[:, 0]})
    for name, part in (("a", rows[:, :1]), ("b", rows[:, 1:]), ("c", rows[:, :1])):
        require_equal(together[name], part)


@settings(max_examples=60)
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_keys_have_the_order_of_their_numbers_and_lead_back_to_them(data: st.DataObject, kind: type) -> None:
    numbers = data.draw(
        npst.arrays(
            kind,
            12,
            elements=npst.from_dtype(
                np.dtype(kind), **({"allow_nan": False} if issubclass(kind, np.floating) else {})
            ),
        )
    )
    keys = order_keys(numbers)
    assert keys.dtype.kind == "u"
    np.testing.assert_array_equal(key_values(np.sort(keys), np.dtype(kind)), np.sort(numbers))


def test_every_rank_can_be_selected() -> None:
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**32, (500, 2), dtype=np.uint32) >> rng.integers(0, 32, (500, 2), dtype=np.uint32)

    def read() -> Iterator[NDArray[np.uint32]]:
        yield from np.array_split(keys, 7)

    found = select(read, range(500), columns=2, bits=32)
    np.testing.assert_array_equal(found, np.sort(keys, axis=0))


@pytest.mark.slow
def test_a_million_rows_take_no_more_memory_than_a_few_batches() -> None:
    rng = np.random.default_rng(1)
    # 5 MB, seen five times each: 24 MB in all
    parts = [rng.normal(3.0, 0.5, (50_000, 6)).astype(np.float32) for _ in range(4)]
    tracemalloc.start()
    with StreamingStatistics() as stream:
        for k in range(20):
            stream.update(parts[k % 4])
        found = stream.result()
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20
    require_equal(found, np.concatenate(parts * 5))


def test_padding_does_not_count() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(60, 3)).astype(np.float32)
    valid = rng.uniform(size=60) < 0.7
    rows[~valid] = 1e9
    with StreamingStatistics() as stream:
        stream.update(rows[:25], valid[:25])
        stream.update(rows[25:], valid[25:])
        stream.update(rows, np.zeros(60, bool))
        require_equal(stream.result(), rows[valid])


def test_more_rows_may_follow_a_result() -> None:
    rows = np.arange(30, dtype=np.int64)
    with StreamingStatistics() as stream:
        for k in range(3):
            stream.update(rows[10 * k : 10 * k + 10])
            require_equal(stream.result(), rows[: 10 * k + 10, None])


def test_large_offsets_lose_no_digits() -> None:
    """One sum of squares would lose them all: the spread is a billionth of the mean."""
    rows = 1e9 + np.random.default_rng(3).normal(size=(20_000, 1))
    with StreamingStatistics() as stream:
        for batch in np.array_split(rows, 50):
            stream.update(batch)
        assert stream.result()["std"][0] == pytest.approx(rows.std(), rel=1e-6)


def test_nothing_is_said_of_no_rows_and_nan_makes_its_column_undefined() -> None:
    with StreamingStatistics() as stream:
        assert stream.result() == {"count": [0]} == exact_statistics(np.zeros((0, 3)))
        rows = np.array([[1.0, np.nan], [2.0, 3.0], [4.0, 5.0]])
        stream.update(rows)
        found = stream.result()
    for statistics in (found, exact_statistics(rows)):
        assert all(np.isnan(statistics[name][1]) for name in STATISTICS)
        assert statistics["q50"][0] == 2.0


@pytest.mark.parametrize("other", [np.zeros((3, 2), np.float32), np.zeros((3, 3), np.float64)])
def test_rows_of_another_width_or_kind_are_refused(other: NDArray) -> None:  # type: ignore[type-arg]
    with StreamingStatistics() as stream, StreamingStatistics() as stranger:
        stream.update(np.zeros((3, 3), np.float32))
        stranger.update(other)
        with pytest.raises(DataError, match="3 columns of float32 got"):
            stream.update(other)
        with pytest.raises(DataError, match="3 columns of float32 got"):
            stream.merge(stranger)
        with pytest.raises(DataError, match="complex"):
            stream.update(np.zeros((3, 3), np.complex64))


@settings(max_examples=25)
@given(
    frames=npst.arrays(
        np.uint8, st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.just(3))
    )
)
def test_pooled_histograms_give_the_statistics_of_all_pixels(frames: NDArray[np.uint8]) -> None:
    histogram = image_histogram(frames)
    np.testing.assert_array_equal(
        histogram, np.stack([np.bincount(frames[..., c].ravel(), minlength=256) for c in range(3)])
    )
    np.testing.assert_array_equal(image_histogram(frames[:, ::-1]), histogram)
    found = image_statistics(histogram + image_histogram(frames[:1]), len(frames) + 1)
    pixels = np.concatenate([frames, frames[:1]]).reshape(-1, 3) / 255.0
    for name, wanted in numpy_statistics(pixels).items():
        np.testing.assert_allclose(
            np.array(found[name]), wanted.reshape(3, 1, 1), rtol=1e-12, atol=1e-15, err_msg=name
        )
