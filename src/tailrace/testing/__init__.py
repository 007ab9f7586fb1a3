"""What users test their own parts of a Tailrace system with.

* `tailrace.testing.runs`: random legal runs, as a Hypothesis strategy. Whatever reads events (a
  fold, a wire format, a store) can be tried on runs that nobody thought of.
* `tailrace.testing.log`: `EventLogKit`, what every store has to keep, as tests to inherit.
* `tailrace.testing.bus`: `BusKit` and `ServerBusKit`, what every bus has to keep.
* `tailrace.testing.follow`: `FollowKit`, what a store and a bus have to give together.
* `tailrace.testing.model`: `check_log`, a store, a bus and their followers against a model, which
  is a few lists, step by random step.
* `tailrace.testing.wire`: what every wire format has to keep.
* `tailrace.testing.providers`: what model providers refuse, in their own words.
* `tailrace.testing.simulator`: strict providers over real HTTP, for any client.

Each module names the packages that it needs beyond Tailrace when it is imported without them.
"""
