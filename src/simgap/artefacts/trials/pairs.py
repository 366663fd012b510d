"""Arms of a trial log compared on the starts they share: counts of pairs, McNemar's exact test, the interval that agrees with it, distinct scenes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from simgap.artefacts.trials.rows import TrialTable
from simgap.artefacts.trials.words import Said, key
from simgap.checks.data.report import DataFinding, Severity
from simgap.statistics import PairedDifference, paired_difference
from simgap.wording import number_of

_OLD = ("old", "baseline", "base", "before", "control", "reference", "ref", "v0", "previous")
_NOT_OUTCOME = (
    "trial",
    "episode",
    "rollout",
    "run",
    "rep",
    "repeat",
    "time",
    "timestamp",
    "date",
    "duration",
    "id",
    "file",
    "path",
    "video",
    "notes",
    "note",
)
_MOST_ARMS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """Two arms on the starts they share."""

    new: str
    old: str
    found: PairedDifference
    scenes: int
    """Distinct scenes among the pairs."""
    by_scene: PairedDifference | None
    """The same counted scene by scene, where scenes are there several times."""
    comparisons: int
    """Comparisons of the table; interval and adjusted p are for all of them together."""

    @property
    def p_adjusted(self) -> float | None:
        """Return the p-value times the number of comparisons (Bonferroni), at most 1."""
        p = self.found.p_value
        return None if p is None else min(1.0, p * self.comparisons)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        c, d = self.found.counts, self.found.difference
        document: dict[str, Any] = {
            "new": self.new,
            "old": self.old,
            "pairs": c.n,
            "both": c.n11,
            "only_new": c.n10,
            "only_old": c.n01,
            "neither": c.n00,
        }
        document |= {
            "dropped": c.dropped,
            "difference": d.point,
            "interval": [d.low, d.high],
            "method": d.method,
            "confidence": d.confidence,
        }
        document |= {
            "p_value": self.found.p_value,
            "test": "exact McNemar",
            "comparisons": self.comparisons,
            "p_adjusted": self.p_adjusted,
            "distinct_scenes": self.scenes,
        }
        if self.by_scene is not None:
            s = self.by_scene
            document["by_scene"] = {
                "new_better": s.counts.n10,
                "old_better": s.counts.n01,
                "equal": s.counts.n11 + s.counts.n00,
                "p_value": s.p_value,
            }
        return document


def identical_starts(trials: TrialTable) -> list[int]:
    """Return the rows that repeat another trial of the same arm from the same seeded start with the same end: they are one trial, counted once."""
    seeded = [c for c in trials.starts if "seed" in key(c)]
    if not seeded or trials.wide:
        return []
    table = trials.table
    free = {c for c in table.columns if set(key(c).split("_")) & set(_NOT_OUTCOME) and c not in trials.starts}
    rows = list(
        zip(
            trials.arms(),
            trials.said(),
            *(table.column(c) for c in table.columns if c not in free),
            strict=True,
        )
    )
    seen, twice = set(), []
    for number, row in enumerate(rows):
        if row in seen and row[1] in (Said.SUCCESS, Said.FAILURE):
            twice.append(number)
        seen.add(row)
    return twice


def comparisons(trials: TrialTable) -> list[Compared]:
    """Compare every two arms of a table on the starts both ran; none where starts are not identified or shared."""
    if not trials.starts or len(names := list(dict.fromkeys(trials.arms()))) < 2 or len(names) > _MOST_ARMS:
        return []
    skip = set(identical_starts(trials))
    ends: dict[str, dict[str, Said]] = {a: {} for a in names}
    scene_of: dict[str, str] = {}
    repeated = False
    rows = zip(
        trials.arms(), trials.keys(trials.starts), trials.keys(trials.scenes), trials.said(), strict=True
    )
    for number, (arm, start, scene, said) in enumerate(rows):
        if number in skip:
            continue
        repeated |= start in ends[arm]
        ends[arm][start], scene_of[start] = said, scene
    if repeated:  # one start several times with different ends: there is no one pair
        return []
    possible = [(new, old) for old, new in combinations(_ordered(names), 2) if _shared(new, old, ends)]
    return [_compare(new, old, ends, scene_of, comparisons=len(possible)) for new, old in possible]


def _ordered(names: Sequence[str]) -> list[str]:
    """Return the arms with what is called old or baseline first."""
    return sorted(names, key=lambda n: (key(n).split("_")[0] not in _OLD, names.index(n)))


def _shared(new: str, old: str, ends: dict[str, dict[str, Said]]) -> list[str]:
    """Return the starts that both arms ran; none unless they are at least half of one arm's."""
    shared = [s for s in ends[new] if s in ends[old]]
    return shared if len(shared) > 1 and 2 * len(shared) >= min(len(ends[new]), len(ends[old])) else []


def _compare(
    new: str, old: str, ends: dict[str, dict[str, Said]], scene_of: dict[str, str], *, comparisons: int
) -> Compared:
    """Compare two arms at a level divided by the number of comparisons, so that all intervals hold together and agree with the adjusted p."""
    shared = _shared(new, old, ends)
    counts, kept = [0, 0, 0, 0], []
    dropped = len(ends[new]) + len(ends[old]) - 2 * len(shared)
    for start in shared:
        pair = ends[new][start], ends[old][start]
        if any(s in (Said.VOID, Said.MISSING) for s in pair):
            dropped += 1
            continue
        kept.append(start)
        a, b = (s is Said.SUCCESS for s in pair)
        counts[0 if a and b else 1 if a else 2 if b else 3] += 1
    confidence = 1.0 - 0.05 / comparisons
    found = paired_difference(*counts, dropped=dropped, confidence=confidence)
    scenes = {scene_of[s] for s in kept}
    by_scene = None
    if 1 < len(scenes) < len(kept):
        sums = dict.fromkeys(scenes, 0)
        for start in kept:
            sums[scene_of[start]] += (ends[new][start] is Said.SUCCESS) - (ends[old][start] is Said.SUCCESS)
        wins, losses = sum(v > 0 for v in sums.values()), sum(v < 0 for v in sums.values())
        by_scene = paired_difference(0, wins, losses, len(sums) - wins - losses)
    return Compared(
        new=new, old=old, found=found, scenes=len(scenes), by_scene=by_scene, comparisons=comparisons
    )


def pair_findings(name: str, trials: TrialTable, found: Sequence[Compared]) -> Iterator[DataFinding]:
    """Yield what has to be known about the pairs of a table."""
    twice = identical_starts(trials)
    if twice:
        text = (
            f"{name}: {number_of(len(twice), 'row repeats', 'rows repeat')} a trial of the same arm,"
            " seed and start with the same end;"
            " each start is counted once"
        )
        remedy = "draw new starts: the same seed run again is no further trial"
        rows = [r + 2 for r in twice]
        yield DataFinding(
            code="identical_starts",
            severity=Severity.WARNING,
            sentence=text,
            remedy=remedy,
            numbers={"rows": rows},
        )
    for c in found:
        if c.by_scene is not None:
            s = c.by_scene
            text = (
                f"{name}: the {c.found.counts.n} pairs of {c.new} and {c.old} stand on {c.scenes} distinct"
                f" scenes; counted by scene {c.new} is better on "
            )
            text += (
                f"{s.counts.n10} and {c.old} on {s.counts.n01} (exact p = {s.p_value:.2g}), which is what"
                " holds if trials of one scene are alike"
            )
            remedy = "use as many scenes as trials; the test over pairs takes them as independent"
            yield DataFinding(
                code="scenes_repeat",
                severity=Severity.NOTE,
                sentence=text,
                remedy=remedy,
                numbers=c.to_json(),
            )
        dropped = c.found.counts.dropped
        if dropped:
            text = (
                f"{name}: {dropped} trials of {c.new} or {c.old} have no counting partner on the same start"
                " and are left out of the pairs"
            )
            yield DataFinding(
                code="pairs_dropped",
                severity=Severity.NOTE,
                sentence=text,
                remedy="run the missing partner, or say the number",
                numbers={"dropped": dropped},
            )
