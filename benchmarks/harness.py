"""Times contenders side by side, and shows the times as a table of ratios.

A shared machine swings by a factor of two from one minute to the next, so no figure is taken alone:
each round runs every contender once, the next round in the opposite order, and a ratio is the
median of the ratios within rounds. What is timed is the CPU time of the thread, which other
processes of the machine disturb least.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Amount = TypeVar("Amount")
Times = dict[int, dict[str, list[float]]]
"""Seconds by size, contender and round; a slow contender sits out the later rounds."""


def _as_it_is(prepared: Any) -> Any:
    return prepared


@dataclass(frozen=True)
class Contender:
    """Something that does the work; of its three functions only `work` is timed.

    What `work` returns must be the same for all contenders that return anything: a contender that
    does something else, or nothing, stops the benchmark.
    """

    name: str
    prepare: Callable[[int], Any]
    """Once for each size: the input."""
    work: Callable[[Any], object]
    setup: Callable[[Any], Any] = _as_it_is
    """Before each round: a fresh object to work on."""
    most: int | None = None
    """The largest size that it is given."""
    why: str = ""
    """Why it is given no larger one."""


@dataclass(frozen=True)
class Pace:
    """How long to measure."""

    name: Literal["full", "quick", "once"]
    rounds: int
    seconds: float
    """What one contender may take at one size; a contender takes part in one round at least."""
    largest: int

    def sizes(self, wanted: Sequence[int]) -> list[int]:
        """The sizes that this pace has time for: the smallest at least."""
        return [size for size in wanted if size <= self.largest] or [min(wanted)]

    def amount(self, *, full: Amount, quick: Amount, once: Amount) -> Amount:
        """How much of something this pace has time for."""
        return {"full": full, "quick": quick, "once": once}[self.name]


FULL = Pace("full", rounds=300, seconds=0.8, largest=1_000_000)
QUICK = Pace("quick", rounds=10, seconds=0.3, largest=10_000)
ONCE = Pace("once", rounds=1, seconds=0.0, largest=0)
"""Shows that everything works, and measures nothing: one round of the smallest size."""

_SHORTEST = 0.005
"""A run that takes less is repeated within each round, and each round counts the average."""
_MOST_REPEATS = 50


@dataclass
class Table:
    """What was measured of some contenders, `ours` and `limit` among them."""

    title: str
    times: Times
    ours: str
    limit: str
    unit: str = "event"
    scale: float = 1e6
    """From seconds to the figures that are shown."""
    per: Callable[[int], float] = float
    """How many units a size stands for."""
    remark: str = ""
    """What the contenders do, and what is not timed."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a contender has no figure for the larger sizes."""
    column: Callable[[int], str] | None = None

    @property
    def sizes(self) -> list[int]:
        """The sizes, ascending."""
        return sorted(self.times)

    def best(self, name: str, size: int) -> float | None:
        """The least that one unit cost, as shown; None if it was not measured."""
        rounds = self.times[size].get(name)
        return min(rounds) / self.per(size) * self.scale if rounds else None

    def ratio(self, name: str, other: str, size: int) -> float | None:
        """How many times as long `name` takes as `other`: the median over their common rounds."""
        pairs = zip(self.times[size].get(name, ()), self.times[size].get(other, ()), strict=False)
        ratios = [one / two for one, two in pairs]
        return statistics.median(ratios) if ratios else None

    def worst(self, name: str, other: str) -> float:
        """The largest ratio over all sizes."""
        found = [self.ratio(name, other, size) for size in self.sizes]
        return max(one for one in found if one is not None)

    def least(self, name: str, other: str) -> float:
        """The smallest ratio over all sizes."""
        found = [self.ratio(name, other, size) for size in self.sizes]
        return min(one for one in found if one is not None)

    def growth(self, name: str) -> tuple[int, int, float] | None:
        """The smallest and the largest size that were measured, and how much dearer that is."""
        found = [(size, cost) for size in self.sizes if (cost := self.best(name, size)) is not None]
        if len(found) < 2:
            return None
        return found[0][0], found[-1][0], found[-1][1] / found[0][1]

    def markdown(self) -> str:
        """The table, for RESULTS.md."""
        names = list(dict.fromkeys(name for size in self.sizes for name in self.times[size]))
        scales = {1e9: "ns", 1e6: "µs", 1e3: "ms", 1.0: "bytes"}
        head = f"{scales[self.scale]} per {self.unit}"
        columns = [(self.column or short)(size) for size in self.sizes]
        if len(columns) > 1:
            columns.append("growth")
        columns += [f"× {self.limit}", f"× {self.ours}"]
        lines = [f"### {self.title}", ""]
        lines += [self.remark, ""] if self.remark else []
        lines += [f"| {head} | " + " | ".join(columns) + " |"]
        lines += ["| --- |" + " ---: |" * len(columns)]
        notes: list[str] = []
        for name in names:
            cells = [number(self.best(name, size)) for size in self.sizes]
            if name in self.skipped and "–" in cells:
                notes.append(f"{name}: {self.skipped[name]}")
            if len(self.sizes) > 1:
                grown = self.growth(name)
                cells.append("–" if grown is None else f"{number(grown[2])} ×")
            cells += [self._spread(name, self.limit), self._spread(name, self.ours)]
            bold = "**" if name == self.ours else ""
            lines.append(f"| {bold}{name}{bold} | " + " | ".join(cells) + " |")
        lines.append("")
        lines += [f"– {note}.\n" for note in notes]
        return "\n".join(lines)

    def _spread(self, name: str, other: str) -> str:
        if name == other:
            return "1"
        found = [self.ratio(name, other, size) for size in self.sizes]
        ratios = [one for one in found if one is not None]
        if not ratios:
            return "–"
        low, high = number(min(ratios)), number(max(ratios))
        return low if low == high else f"{low} … {high}"


@dataclass(frozen=True)
class Figures:
    """A plain table, of figures that no contender has."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    remark: str

    def markdown(self) -> str:
        """The table, for RESULTS.md."""
        lines = [self.head, ("---", *["---:"] * (len(self.head) - 1)), *self.rows]
        cells = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([f"### {self.title}", "", self.remark, "", *cells, ""])


@dataclass(frozen=True)
class Target:
    """A line of the list of targets: what was wanted, and what was measured."""

    what: str
    wanted: str
    measured: str
    met: bool


def at_most(what: str, bound: float, measured: float, unit: str = "×") -> Target:
    """A target that is met from below."""
    return Target(
        what, f"at most {bound:g} {unit}", f"{number(measured)} {unit}", measured <= bound
    )


def at_least(what: str, bound: float, measured: float, unit: str = "×") -> Target:
    """A target that is met from above."""
    return Target(
        what, f"at least {bound:g} {unit}", f"{number(measured)} {unit}", measured >= bound
    )


def flat(what: str, table: Table) -> Target:
    """A target of costs that do not depend on the size: half as much again is noise and caches."""
    grown = table.growth(table.ours)
    if grown is None:
        return Target(what, "flat", "one size only", met=False)
    small, large, ratio = grown
    wanted = f"flat: at most 1.5 × from {short(small)} to {short(large)}"
    return Target(what, wanted, f"{number(ratio)} ×", ratio <= 1.5)


def measure(
    title: str, contenders: Sequence[Contender], sizes: Sequence[int], pace: Pace, **shown: Any
) -> Table:
    """Run the contenders at each size; the first one is the limit, the second one is us."""
    limit, ours = contenders[0].name, contenders[1].name
    times = {size: _at_size(title, contenders, size, pace) for size in pace.sizes(sizes)}
    skipped = {one.name: one.why for one in contenders if one.why}
    return Table(title, times, ours, limit, skipped=skipped, **shown)


def _at_size(
    title: str, contenders: Sequence[Contender], size: int, pace: Pace
) -> dict[str, list[float]]:
    racing = [one for one in contenders if one.most is None or size <= one.most]
    progress(f"{title}: {short(size)}, preparing")
    inputs = {one.name: one.prepare(size) for one in racing}
    times: dict[str, list[float]] = {one.name: [] for one in racing}
    repeats: dict[str, int] = {}
    answers: dict[str, object] = {}
    # The collector stays on, as in a server, but does not walk through the inputs.
    gc.collect()
    gc.freeze()
    try:
        for turn in range(pace.rounds):
            racing = [one for one in racing if _has_time(times[one.name], pace)]
            if not racing:
                break
            for one in racing if turn % 2 == 0 else reversed(racing):
                progress(f"{title}: {short(size)}, round {turn + 1}, {one.name}")
                taken, answer = _timed(one, inputs[one.name], repeats.get(one.name, 1))
                if turn == 0 and taken < _SHORTEST and pace is not ONCE:
                    # Too short to be distinguished from noise, and the caches were cold.
                    repeats[one.name] = min(int(_SHORTEST / taken) + 1, _MOST_REPEATS)
                    taken, _ = _timed(one, inputs[one.name], repeats[one.name])
                times[one.name].append(taken)
                if turn == 0 and answer is not None:
                    answers[one.name] = answer
            if turn == 0:
                _agree(title, answers)
                answers.clear()
    finally:
        gc.unfreeze()
    progress("")
    return times


def _timed(one: Contender, prepared: Any, repeats: int) -> tuple[float, object]:
    """Seconds of one run, over as many as asked for, and what the last one gave."""
    ready = [one.setup(prepared) for _ in range(repeats)]
    gc.collect()
    answer: object = None
    start = time.thread_time()
    for fresh in ready:
        answer = one.work(fresh)
    return (time.thread_time() - start) / repeats, answer


def _has_time(taken: list[float], pace: Pace) -> bool:
    """Whether a contender takes part in one more round: five at least, unless it is very slow."""
    if not taken:
        return True
    return sum(taken) + taken[-1] < pace.seconds * (2.5 if len(taken) < 5 else 1)


def _agree(title: str, answers: dict[str, object]) -> None:
    names = list(answers)
    for name in names[1:]:
        if answers[name] != answers[names[0]]:
            raise AssertionError(f"{title}: {name} and {names[0]} do not give the same result")


def progress(text: str) -> None:
    """One line on stderr, which the next one overwrites."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text[:100]}")
    elif text and ("preparing" in text or "round" not in text):
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def number(value: float | None) -> str:
    """Two or three digits are all that a noisy machine can give."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def short(size: int) -> str:
    """1k, 10k, 1M."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)
