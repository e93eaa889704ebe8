"""Regions: boxes of the space with a model each, for more observations than one factor serves.

======  ==================================================================  ========
symbol  meaning                                                             shape
======  ==================================================================  ========
n       all records                                                         scalar
c       the center of a region: the best point of its last round            (d,)
s       the side of its box, in units of the space; numbers only            scalar
======  ==================================================================  ========

A region is a box around a center. Its model has the records near it, at most a few hundred, and every later one in the
box. It works in *rounds* of a fixed number of evaluations. A round that improved often doubles the side, one that did
not improve halves it; the next round is around the best point, with a new model. A region whose box has become tiny has
found what there is, and is replaced by one where a model of the whole space expects most.

So a step costs the same however many records there are, and all of them count: new rounds and new regions learn from
them. The box is a space of its own with narrower ranges (`Space.box`). So the model sees a box of any size as a unit
cube, and everything that works in a space works in a region: integers, choices, conditions, known and measured
constraints, several objectives, failures and costs.

What a region is depends only on the records and on `state`, so that a resumed run continues in the same way. The state
changes only in `settle`, and depends on results only: pending suggestions, and how often something was proposed, make
no difference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lazybo.core import Array, checks, one_thread
from lazybo.search.hypervolume import non_dominated
from lazybo.search.options import LocalModels
from lazybo.search.records import Index, Record, Records
from lazybo.search.results import State

if TYPE_CHECKING:
    from lazybo.search.decide import Search

# Which region each suggestion is for, by its number: the regions are sorted by their best value.
TURNS = (0, 1, 0, 2)
# The first region is as large as this many of the best records are apart.
BEST_APART = 50
# This many improvements in a round double the side.
MANY_IMPROVEMENTS = 4
# An improvement counts if it is more than this share of the distance from the best value to the median.
MATTERS = 1e-3
# Random configurations that are tried if the proposed one was evaluated before.
OTHER_TRIES = 64
# No study has more observations. A state that was edited may say so.
MAX_ROWS = 2**53


@dataclass
class Region:
    """A box with a search of its own. The records before the serial number ``start`` existed when its round began.

    Those in ``waiting`` had no result then; it is None when loaded from an old state: then those without a result now.
    """

    center: Array
    side: float
    start: int
    waiting: list[int] | None = None
    search: "Search | None" = None  # made when it is needed
    learned: Mapping[str, Any] | None = None  # what the search had learned before this region was restored
    before: int = 0  # the first serial number of the search that belongs to the round
    seen: int = 0  # records before this serial number are in the search, if they belong there
    pending: list[tuple[Record, Record]] = field(default_factory=list)  # each with its copy in the search

    def forget_search(self) -> None:
        """Make the search again when it is needed, and forget what it has learned."""
        self.search, self.learned, self.pending = None, None, []


class Regions:
    """The regions of a space. They read the records of the search in the whole space and propose configurations."""

    def __init__(self, everything: "Search", sizes: LocalModels) -> None:
        self._everything, self._sizes = everything, sizes
        self._space, self._records = everything.space, everything.records
        self._regions: list[Region] = []

    @one_thread()
    def settle(self, seed: int, budget_left: float | None) -> None:
        """Update the regions to all results: end the rounds that are over, and learn what is due.

        Until there are new results, another call changes nothing. ``budget_left`` is for the cost.
        """
        if not self._regions:
            self._regions = self._first_regions()
        self._regions = [self._continued(region, seed, index) for index, region in enumerate(self._regions)]
        for search in map(self._synced, self._regions):
            search.models.budget_left = budget_left
            search.learn()

    @one_thread()
    def propose(self, seed: int, number: int) -> dict[str, Any]:
        """The configuration of the suggestion with this number. It changes nothing; call `settle` first."""
        searches = [self._synced(region) for region in self._regions]
        order = np.argsort([_ranks_without_noise(each).min(initial=np.inf) for each in searches], kind="stable")
        search = searches[order[TURNS[number % len(TURNS)] % len(order)]]
        rng = np.random.default_rng((seed, number, 6))
        if search.feasible is None or not search.feasible.is_empty(seed):
            params = search.configuration(search.choose(seed, number, 1)[0])
            if not self._records.places.at(self._space.points.encode(params)) or self._everything.is_exhausted(seed):
                return params
            if (other := self._other(search, rng, ended=False)) is not None:
                return other
        return self._everything.configuration(self._everything.random_point(seed, rng))

    def _other(self, search: "Search", rng: np.random.Generator, *, ended: bool) -> dict[str, Any] | None:
        """A random configuration of a box without a record, or without one that ``ended``; None if there is none."""
        for params in search.space.points.decode_all(search.space.points.sample(rng, OTHER_TRIES)):
            rows = self._records.places.at(self._space.points.encode(params))
            taken = [row for row in rows if not ended or self._records[row].result.state is not State.PENDING]
            if not taken and (search.feasible is None or search.feasible.contains.holds(params)):
                return params
        return None

    def of_whole_space(self, seed: int) -> "Search":
        """A search in the whole space, with the best records and as many others as it can serve."""
        rows = _with_result(self._records)
        best = rows[np.argsort(_ranks(self._records)[rows], kind="stable")[: self._sizes.best_of_all]]
        others = np.setdiff1d(rows, best)
        rng = np.random.default_rng((seed, len(self._records), 4))
        spread = rng.choice(others, min(self._sizes.spread_over_all, len(others)), replace=False)
        search = self._everything.part(self._space, local=False)
        waiting = _without_result(self._records)[-self._sizes.most_pending :]
        for row in np.sort(np.concatenate((best, spread, waiting))):
            found = self._records[row]
            search.records.add(found.params, found.result, found.number)
        return search

    # ----------------------------------------------------------------- change

    def changed(self) -> None:
        """Results that were known have changed: every model learns again from the start."""
        for region in self._regions:
            region.forget_search()

    def remove(self, record: Record) -> None:
        """A pending record will be removed."""
        for region in self._regions:
            search = self._synced(region)  # what was learned counts the rows of the search
            for each, mine in region.pending:
                if each is record:
                    search.remove(search.records.row_of(mine.serial))
            region.pending = [(each, mine) for each, mine in region.pending if each is not record]
            if record.serial < region.start:
                assert region.waiting is not None, "it is known once the search was made"
                others = [serial for serial in region.waiting if serial != record.serial]
                if len(others) == len(region.waiting) or len(others) >= self._sizes.most_pending:
                    region.forget_search()  # without this record, the search would have begun with others
                region.waiting = others

    def state(self) -> list[dict[str, Any]]:
        """The regions as plain data for JSON, with rows in place of serial numbers."""
        found = []
        for region in self._regions:
            learned = region.learned if region.search is None else region.search.models.state()
            waiting = [self._records.row_of(serial) for serial in region.waiting or ()]
            found.append(
                {
                    "center": [None if np.isnan(x) else float(x) for x in region.center],
                    "side": region.side,
                    "start": self._records.row_of(region.start),
                    **({"waiting": waiting} if waiting else {}),
                    **({} if learned is None else {"model": learned}),
                }
            )
        return found

    @classmethod
    def parse(cls, everything: "Search", sizes: LocalModels, state: Any) -> "Regions":
        """The regions with this `state`. Raises errors if it is not a state of regions of this space."""
        regions = cls(everything, sizes)
        models = everything.part(everything.space, local=True).models
        for each in state:
            center = np.array([np.nan if x is None else checks.finite_number("center", x) for x in each["center"]])
            if len(center) != everything.space.points.dim:
                raise ValueError(f"the center of a region must have {everything.space.points.dim} numbers")
            start, side = checks.whole("start", each["start"], 0, MAX_ROWS), checks.positive("side", each["side"])
            waiting = each.get("waiting")
            if waiting is not None:
                rows = [checks.whole("a row that was pending", row, 0, MAX_ROWS) for row in waiting]
                waiting = [regions._serial(row) for row in rows]
            if "model" in each:
                models.parse(each["model"])  # raises if it is of another kernel or space
            begun = Region(center, side, regions._serial(start), waiting, learned=each.get("model"))
            regions._regions.append(begun)
        return regions

    def _serial(self, row: int) -> int:
        """The serial number of the record in a row, which may be added later."""
        n = len(self._records)
        return self._records[row].serial if row < n else self._records.next_serial + row - n

    # --------------------------------------------------------------- regions

    def _first_regions(self) -> list[Region]:
        """A region around the best point, as large as the best points are apart, and others away from it."""
        rows = _with_result(self._records)
        rows = rows[np.argsort(_ranks(self._records)[rows], kind="stable")]
        rows = rows[self._everything.models.inside(rows, self._sizes.most_new)]
        points = self._space.points.clip(self._records.points(rows))
        centers: list[Array] = []
        for point in points:
            if all(self._space.distances(point[None], center)[0] > self._sizes.first_side / 2 for center in centers):
                centers.append(point)
            if len(centers) == len(set(TURNS)):
                break
        apart = 2.0 * float(np.median(self._space.distances(points[:BEST_APART], centers[0])))
        sides = [
            min(max(apart, 16 * self._sizes.least_side), self._sizes.first_side),
            *[self._sizes.first_side] * (len(centers) - 1),
        ]
        return [self._begun(center, side) for center, side in zip(centers, sides, strict=True)]

    def _begun(self, center: Array, side: float) -> Region:
        """A region whose round begins now."""
        waiting = [self._records[row].serial for row in _without_result(self._records)]
        return Region(center, side, self._records.next_serial, waiting)

    def _continued(self, region: Region, seed: int, index: int) -> Region:
        """A region, or its successor: its next round, or a new region if nothing is left to evaluate in it."""
        needed = max(self._sizes.round, self._space.points.dim)
        if self._count_results(region) > needed + self._sizes.most_new:
            return self._begun(region.center, region.side)
        search = self._synced(region)
        if _results(search, region.before) >= needed:
            return self._next_round(region, search, seed, index)
        assert region.waiting is not None, "it is known once the search was made"
        before = self._records.row_of(region.start) - len(region.waiting)
        if len(_with_result(self._records)) > before and self._is_exhausted(search, seed):
            return self._new_region(seed, index)
        return region

    def _count_results(self, region: Region) -> int:
        """The number of results in a box since the round began, also those that its search does not have yet."""
        search = region.search or self._built(region)
        new = (self._records[row] for row in range(self._records.row_of(region.seen), len(self._records)))
        return _results(search, region.before) + sum(
            each.result.state is not State.PENDING and search.space.has(each.params) for each in new
        )

    def _is_exhausted(self, search: "Search", seed: int) -> bool:
        """Whether all configurations of a box seem to have a result, while others in the space have none."""
        if search.feasible is not None and search.feasible.is_empty(seed):
            return True
        known = len(_with_result(self._records))
        if search.space.size == np.inf or (search.feasible is None and search.space.size > known):
            return False
        if self._everything.is_exhausted(seed):
            return False
        return self._other(search, np.random.default_rng((seed, known, 7)), ended=True) is None

    def _next_round(self, region: Region, search: "Search", seed: int, index: int) -> Region:
        """The region around the best point of its last round; a new region if the box has become tiny."""
        count = _improvements(search, region.before)
        side = region.side * (2.0 if count >= MANY_IMPROVEMENTS else 0.5 if count == 0 else 1.0)
        if side < self._sizes.least_side:
            return self._new_region(seed, index)
        rng = np.random.default_rng((seed, len(self._records), 5))
        best = search.records[_best_row(search, rng)].params
        center = self._space.points.clip(self._space.points.encode(best)[None])[0]
        return self._begun(center, min(side, 1.0))

    def _new_region(self, seed: int, index: int) -> Region:
        """A region where the model of the whole space expects most; it replaces the one at ``index``."""
        center = self.of_whole_space(seed).choose(seed, len(self._records) + index, 1)[0]
        return self._begun(center, self._sizes.first_side)

    def _synced(self, region: Region) -> "Search":
        """The search of a region with all records that belong there."""
        search = region.search or self._built(region)
        for record, mine in region.pending:
            if record.result is not mine.result:
                search.resolve(search.records.row_of(mine.serial), record.result)
        region.pending = [pair for pair in region.pending if pair[0].result.state is State.PENDING]
        for row in range(self._records.row_of(region.seen), len(self._records)):
            self._add(region, search, row)
        region.seen = self._records.next_serial
        return search

    def _built(self, region: Region) -> "Search":
        """The search as it was when the round began: the records near the box, and those that were pending in it."""
        # Another process, in which this region began, may have had more records.
        region.start = min(region.start, self._records.next_serial)
        if region.waiting is None:
            rows = _without_result(self._records)
            region.waiting = [self._records[row].serial for row in rows[rows < self._records.row_of(region.start)]]
        region.waiting = [serial for serial in region.waiting if serial < region.start]
        search = self._everything.part(self._space.box(region.center, region.side), local=True)
        for row in self._neighbours(region):
            self._add(region, search, int(row), outside=True)
        for serial in region.waiting[-self._sizes.most_pending :]:
            self._add(region, search, self._records.row_of(serial))
        region.search, region.before, region.seen = search, search.records.next_serial, region.start
        if region.learned is not None:
            search.models.restore(search.models.parse(region.learned))
            region.learned = None
        return search

    def _add(self, region: Region, search: "Search", row: int, *, outside: bool = False) -> None:
        """Add a record to the search of a region if it is in its box, or may be ``outside``."""
        record = self._records[row]
        if not outside and not search.space.has(record.params):
            return
        mine = search.records.add(search.space.plain(record.params, outside=True), record.result, None)
        if record.result.state is State.PENDING:
            region.pending.append((record, mine))

    def _neighbours(self, region: Region) -> Index:
        """The rows that a round begins with, in their order: the nearest ones, and some of all within twice the box."""
        waiting = [self._records.row_of(serial) for serial in region.waiting or ()]
        rows = np.setdiff1d(np.arange(self._records.row_of(region.start)), np.array(waiting, dtype=np.intp))
        distances = self._space.distances(self._records.points(rows), region.center)
        near = np.argsort(distances, kind="stable")
        first, rest = near[: self._sizes.neighbours // 2], near[self._sizes.neighbours // 2 :]
        inside = np.sort(rest[: max(np.count_nonzero(distances[rest] <= region.side), self._sizes.neighbours // 2)])
        rng = np.random.default_rng(len(rows))
        spread = rng.choice(inside, min(self._sizes.neighbours // 2, len(inside)), replace=False)
        return np.sort(rows[np.concatenate((first, spread))])


def _with_result(records: Records) -> Index:
    """The rows that have ended, or have a forecast."""
    return np.setdiff1d(np.arange(len(records)), _without_result(records))


def _without_result(records: Records) -> Index:
    """The rows that have neither ended nor a forecast."""
    pending = records.rows(State.PENDING)
    forecast = [not np.isnan(records[row].result.values or np.nan).all() for row in pending]
    return pending[~np.array(forecast, dtype=bool)]


def _results(search: "Search", before: int) -> int:
    """How many of the records from the serial number ``before`` on have ended."""
    first = search.records.row_of(before)
    pending = search.records.rows(State.PENDING)
    return len(search.records) - first - int(np.count_nonzero(pending >= first))


def _ranks(records: Records) -> Array:
    """A number for each row, smaller for better ones: infinity if it has no value or is not feasible, (n,).

    It is the value of one objective; of several, 0 on the front and 1 elsewhere.
    """
    ranks, rows = np.full(len(records), np.inf), np.flatnonzero(records.feasible(forecasts=True))
    values = np.column_stack([records.values(j)[rows] for j in range(records.objectives)])
    ranks[rows] = values[:, 0] if records.objectives == 1 else 1.0 - non_dominated(values)
    return ranks


def _ranks_without_noise(search: "Search") -> Array:
    """The ranks in a search; where its model has found noise, by what it expects instead of what was measured."""
    ranks, surrogate = _ranks(search.records), search.models.objectives[0]
    if search.records.objectives == 1 and surrogate.fitted.is_noisy:
        now = surrogate.current()
        rows, means = now.denoised()
        expected = np.full(len(ranks), np.inf)
        expected[rows] = now.warping.inverse(means)
        ranks = np.where(np.isfinite(ranks), expected, np.inf)
    return ranks


def _ranks_or_violations(search: "Search") -> Array:
    """The ranks in a search; by how much constraints are violated if nothing is feasible, (n,)."""
    ranks, records = _ranks_without_noise(search), search.records
    if np.isfinite(ranks).any():
        return ranks
    excess = sum((np.maximum(each, 0.0) for each in records.violations.values()), np.zeros(len(ranks)))
    return np.where(np.isnan(excess), np.inf, excess)


def _best_row(search: "Search", rng: np.random.Generator) -> int:
    """A row of the best ones that satisfy the known constraint, if any does."""
    ranks = _ranks_or_violations(search)
    rows = np.argsort(ranks, kind="stable")
    rows = rows[search.models.inside(rows)]
    return int(rng.choice(rows[ranks[rows] == ranks[rows[0]]]))


def _improvements(search: "Search", before: int) -> int:
    """How often the records from the serial number ``before`` on have improved on all earlier ones."""
    ranks, first = _ranks_or_violations(search), search.records.row_of(before)
    if search.records.objectives > 1:
        return int(np.count_nonzero(ranks[first:] == 0.0))
    known = ranks[np.isfinite(ranks)]
    if not len(known):
        return 0
    matters = MATTERS * float(np.median(known) - known.min())
    best, count = float(ranks[:first].min(initial=np.inf)), 0
    for value in ranks[first:]:
        if value < best - matters:
            best, count = float(value), count + 1
    return count
