"""`GET /metrics`: the numbers of this process in the text format of Prometheus.

Every process has its own numbers, and Prometheus adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tailrace.core.errors import CallerError, NotFound
from tailrace.runtime.diagnostics.metrics import FLUSH_SECONDS
from tailrace.runtime.runs.all_runs import Runs
from tailrace.server.transport.connections import Connections

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric


def registry(runs: Runs, connections: Connections) -> CollectorRegistry:
    """What Prometheus reads of this process; `NotFound` without the extra `metrics`."""
    try:
        import prometheus_client as prometheus
    except ImportError:
        raise NotFound(
            "/metrics needs the package prometheus-client. Run: pip install 'tailrace[metrics]'"
        ) from None
    made = prometheus.CollectorRegistry()
    prometheus.ProcessCollector(registry=made)
    prometheus.PlatformCollector(registry=made)
    prometheus.GCCollector(registry=made)
    made.register(_Numbers(runs, connections))
    return made


def page(made: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The page and its type: OpenMetrics for those who ask for it."""
    from prometheus_client.exposition import choose_encoder

    encode, media_type = choose_encoder(accept)
    return encode(made), media_type


@contextmanager
def served(made: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Serve the page at an address, in a thread, for a process without a server of its own."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, made)
    except OSError as error:
        raise CallerError(
            f"`metrics` cannot listen on {host}:{port} ({error.strerror}). Use another address."
        ) from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Numbers:
    def __init__(self, runs: Runs, connections: Connections) -> None:
        self._runs = runs
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        """The numbers as they are now."""
        from prometheus_client.core import HistogramMetricFamily

        found, worker = self._runs.metrics, self._runs.worker
        states = {} if worker is None else {"working": worker.runs, "parked": worker.parked}
        yield _gauge(
            *("tailrace_runs", "Runs of this worker; parked runs wait for people.", ["state"]),
            [((state,), len(runs)) for state, runs in states.items()],
        )
        yield _counter("tailrace_runs_started", "Runs that were started.", found.runs_started)
        yield _counter(
            *("tailrace_runs_ended", "Runs that were ended, by status."),
            [((status,), count) for status, count in list(found.runs_ended.items())],
            ["status"],
        )
        yield _counter("tailrace_events", "Events that were stored.", found.events)
        bounds = [*map(str, FLUSH_SECONDS), "+Inf"]
        yield HistogramMetricFamily(
            "tailrace_flush_seconds",
            "How long the store took for the new events of all runs.",
            buckets=list(zip(bounds, accumulate(found.flushes), strict=True)),
            sum_value=found.flush_seconds,
        )
        yield _counter("tailrace_claims", "Runs that this worker claimed.", found.claims)
        about = "Claims of runs that a worker has lost before."
        yield _counter("tailrace_takeovers", about, found.takeovers)
        about = "Runs that another worker has taken from this worker."
        yield _counter("tailrace_lost_runs", about, found.lost_runs)
        about = "How often the store went away."
        yield _counter("tailrace_store_outages", about, self._runs.outage.count)
        about = "How often the bus went away."
        yield _counter("tailrace_bus_outages", about, getattr(self._runs.bus, "outages", 0))
        away = int(self._runs.outage.is_on)
        yield _gauge("tailrace_store_away", "1 while the store is away.", [], [((), away)])
        streams = [((), len(self._connections))]
        yield _gauge("tailrace_streams", "Open streams.", [], streams)
        yield _counter("tailrace_stream_bytes", "Bytes of streams.", self._connections.sent_bytes)
        yield _counter(
            *("tailrace_requests", "Answered requests."),
            [
                ((method, route, str(status)), count)
                for (method, route, status), count in list(found.requests.items())
            ],
            ["method", "route", "status"],
        )


Values = Iterable[tuple[tuple[str, ...], int]]


def _counter(name: str, about: str, values: int | Values, labels: Iterable[str] = ()) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    made = CounterMetricFamily(name, about, labels=list(labels))
    return _filled(made, [((), values)] if isinstance(values, int) else values)


def _gauge(name: str, about: str, labels: Iterable[str], values: Values) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(name, about, labels=list(labels)), values)


def _filled(metric: Any, values: Values) -> Metric:
    for labels, value in values:
        metric.add_metric(list(labels), value)
    made: Metric = metric
    return made
