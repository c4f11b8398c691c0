"""Eviction that knows the announced steps: bench_place --what ahead."""
from report.page import kept, run, source, table
from report.record import Into, noted

AHEAD = "build/bench_place --json --what ahead --devices 1,2,8 "
NAMES = ("place-ahead", "place-ahead-planted")
DEALINGS = {"random": "random", "two-level": "two levels"}
RULES = ("protect", "admit", "current") # that know L steps
RATIOS = (0, .1, .25, .5, 1, 2, 4) # rows of the cache over those of L + 1 steps
BY_RATIO = Into("cache/ahead", (0,), {"cases": "cases", **{rule: rule for rule in RULES}}, NAMES)
INTRODUCTION = """\
Announcing tells a device the rows of its next L steps. Would a cache that evicts by them have more hits? Simulated \
(`bench/place/ahead.h`) with sets, hash and holder rule of the library's caches: places of outdated copies are given \
away first, what a row is worth is its gain, and the caches begin with the rows of most gain ([above](#host-rows-read)).

- *Worth*: a row replaces the copy worth least, if it is worth more. It knows no announced step.
- *Protect*: as that, but no copy is evicted whose row the device has announced for a later step.
- *Admit*: and a row that is announced for a later step is let in whatever it is worth, if a copy in its set may be \
evicted.
- *Current*: as admit, for rows whose copies will still be current when the device touches them next. Other devices' \
announcements tell.
- *Belady*: knows all steps. No rule has more hits in these sets.

L steps are announced at every lookup, the most that there can be; in the library, loaders announce at their own \
speed. Gains know the whole trace, so a rule adds here to a cache that already keeps the rows that are best on \
average. \
"""


def measure():
    run(NAMES[0], AHEAD + "--trace fb15k-237,wn18rr")
    run(NAMES[1], AHEAD + "--trace planted --samples 200000 --rows 200000 --warm-up 60 --steps 30")


def points(gained):
    return f"{round(100 * gained, 1) + 0.0:+.1f}" # no -0.0


class Case:
    """All rules with one trace, number of devices, dealing and cache."""

    def __init__(self, records):
        self.first = records[0]
        hits = {(r["rule"], r["lookahead"]): r["hits"] for r in records}
        self.worth, self.belady = hits["worth", None], hits["belady", None]
        self.gained = {known: found - self.worth for known, found in hits.items() if known[1] is not None}
        self.window = {r["lookahead"]: r["window"] for r in records if r["lookahead"] is not None}

    def row(self):
        one = self.first
        return [one["trace"], one["devices"], DEALINGS[one["dealing"]] if one["devices"] > 1 else "",
                f"{one['cache']:.0%}, {one['cache_rows']:,}", ", ".join(f"{n:,.0f}" for n in self.window.values()),
                f"{self.worth:.3f}",
                *(", ".join(points(self.gained[rule, known]) for known in self.window) for rule in RULES),
                points(self.belady - self.worth)]


def cases():
    found = {}
    for r in (r for name in NAMES for r in kept(name)["records"] if r["what"] == "ahead"):
        found.setdefault(tuple(r[field] for field in ("trace", "devices", "dealing", "cache")), []).append(r)
    return [Case(records) for records in found.values()]


def by_ratio(all_cases):
    rows = []
    for low, high in zip(RATIOS, (*RATIOS[1:], float("inf"))):
        some = [(case, known) for case in all_cases for known, n in case.window.items()
                if low <= case.first["cache_rows"] / n < high]
        if some:
            row = [f"{low:g} to {high:g}" if high < float("inf") else f"{low:g} and more", len(some)]
            for rule in RULES:
                gained = [case.gained[rule, known] for case, known in some]
                row.append(f"{points(sum(gained) / len(gained))} ({points(min(gained))} to {points(max(gained))})")
            rows.append(row)
    return noted(BY_RATIO, ["rows of the cache over those of L + 1 steps", "cases", *RULES], rows)


def write():
    found = cases()
    known = ", ".join(str(n) for n in found[0].window)
    page = INTRODUCTION + (
        f"{found[0].first['batch']} samples a device and step. The planted trace is smaller than above: 200,000 "
        "samples over 200,000 rows. Counts are exact: each run gives the same.\n\nHits of *worth*, over the rows that "
        f"devices touch; then the points of hits (%) that the other rules have more, with L = {known}. Beside the "
        f"cache's rows are those that a device touches in L + 1 steps, with L = {known}.\n\n")
    page += table(["trace", "devices", "dealt", "cache, rows", "rows of L + 1 steps", "worth", *RULES, "Belady"],
                  [case.row() for case in found])
    page += ("\nThe same points by the size of the cache: means, and in parentheses the least and the most, over all "
             "lines of the table above and all L.\n\n")
    return page + by_ratio(found) + source(*NAMES)
