"""Real PostgreSQL and Redis servers for the tests: private, on free ports, in a folder that goes.

The tests start, kill and restart them as they like; nothing that runs on the machine is touched. A
server that is not installed fails the test in one sentence: a test that is skipped proves nothing.
`scripts/services` installs what is missing.

    postgres_url, redis_url       an unused schema, an empty Redis: what most tests want
    postgres, redis               the servers behind them, running again before each test
    Postgres(fsync=True), …       a server of one's own, for a test of durability

Everything here blocks; in an async test call it through `asyncio.to_thread` where the loop has to
go on meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import pwd
import random
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

READY_WITHIN = 60.0
"""Seconds a server may take to start; a busy machine is slow, and slowness is no failure."""


class ServiceError(Exception):
    """A server is missing or did not start; the message says what to do."""


class Postgres:
    """A PostgreSQL server. `fsync` costs time and is only needed where the machine may die.

    An immediate stop is a crash of the server, not of the machine: what was committed survives it
    without `fsync` too. `settings` are passed on as `-c name=value`.
    """

    def __init__(
        self,
        *,
        fsync: bool = False,
        settings: dict[str, str] | None = None,
        primary: Postgres | None = None,
    ) -> None:
        """With a `primary` it is a replica of it."""
        self._initdb, self._pg_ctl, self._psql, basebackup = _postgres_programs(
            "initdb", "pg_ctl", "psql", "pg_basebackup"
        )
        self._folder = _folder("postgres")
        # PostgreSQL refuses to run as root.
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = _unprivileged()
            self._user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        self.port = _free_port()
        self.url = self._url("postgres")
        self._data = self._folder / "data"
        self._log = self._folder / "log"
        self._settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._folder),
            "fsync": "on" if fsync else "off",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "timezone": "UTC",
            **(settings or {}),
        }
        self._numbers = itertools.count(1)
        self._running = False
        ending = f"{shlex.quote(self._pg_ctl)} stop -w -m immediate -D data"
        self._guard = _guard(self._folder, ending, self._user)
        atexit.register(self.close)
        if primary is None:
            options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
            self._run([self._initdb, *options], "-D", self._data)
        else:
            options = ["-R", "-c", "fast", "-X", "stream", "--no-sync"]
            self._run([basebackup, *options], "-d", primary.url, "-D", self._data)
        self.start()

    @property
    def pid(self) -> int:
        """The process that starts the others."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        """Start it, and wait until it answers; nothing happens if it runs."""
        if self._running:
            return
        options = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        self._ctl("start", "-o", options, "-l", self._log, "-t", str(int(READY_WITHIN)))
        self._running = True

    def stop(self, mode: Literal["immediate", "fast"] = "immediate") -> None:
        """Stop it: `immediate` is a crash, `fast` rolls back and closes the connections first."""
        if self._running:
            self._ctl("stop", "-m", mode)
            self._running = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all its processes with SIGSTOP: connections stay open, and nothing is answered."""
        main = self.pid
        os.kill(main, signal.SIGSTOP)  # first, so that it starts no further processes
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in children:
            os.kill(int(pid), signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in [str(main), *children]:
                os.kill(int(pid), signal.SIGCONT)

    def restart(self, mode: Literal["immediate", "fast"] = "immediate") -> None:
        """Stop and start, on the same port with the same data."""
        self.stop(mode)
        self.start()

    def schema(self) -> str:
        """A URL that names an unused schema; a store makes it when it is opened."""
        return f"{self.url}?schema=test_{next(self._numbers)}"

    def database(self) -> str:
        """Make an empty database; its URL. It takes a while: mostly `schema` is enough."""
        name = f"test_{next(self._numbers)}"
        self.sql(f'create database "{name}"')
        return self._url(name)

    def sql(self, statement: str, url: str | None = None) -> str:
        """Run a statement as an outsider, with `psql`; the values, separated by `|`."""
        psql = [self._psql, "-X", "-qAt", "-v", "ON_ERROR_STOP=1"]
        return self._run(psql, "-d", url or self.url, "-c", statement).strip()

    def close(self) -> None:
        """Stop it and throw everything away."""
        atexit.unregister(self.close)
        self._guard.communicate(timeout=READY_WITHIN)
        self._running = False

    def _url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def _ctl(self, command: str, *args: str | Path) -> None:
        self._run([self._pg_ctl, command, "-w"], "-D", self._data, *args)

    def _run(self, command: list[str], *args: str | Path) -> str:
        # To a file, not a pipe: the server that `pg_ctl` leaves behind would keep a pipe open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [*command, *args],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=2 * READY_WITHIN,
                **self._user,
            )
            output.seek(0)
            text = output.read().decode(errors="replace")
        if done.returncode != 0:
            log = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
            name = Path(command[0]).name
            raise ServiceError(f"PostgreSQL's {name} failed: {text.strip()}\n{log}")
        return text


class Redis:
    """A Redis server. By default it keeps nothing over a restart; with `persist` it tries to."""

    def __init__(self, *, persist: bool = False, cluster: bool = False) -> None:
        program = os.environ.get("REDIS_SERVER", "redis-server")  # or Valkey's
        self._program = _program(program, "Redis", "redis-server")
        self._folder = _folder("redis")
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._persist = persist
        self.cluster_port = _free_port() if cluster else None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = _guard(self._folder, 'kill -9 "$(cat pid)"', {})
        atexit.register(self.close)
        self.start()

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers; nothing happens if it runs."""
        if self._process is not None:
            return
        log = self._folder / "log"
        options = f"--port {self.port} --bind 127.0.0.1 --pidfile pid --appendonly "
        options += "yes" if self._persist else "no"
        if self.cluster_port is not None:
            options += f" --cluster-enabled yes --cluster-port {self.cluster_port}"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [self._program, *options.split(), "--save", "", "--dir", self._folder],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + READY_WITHIN
        while True:
            with contextlib.suppress(OSError):
                if self.command("PING") == b"+PONG":
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise ServiceError(f"Redis did not start: {log.read_text(errors='replace')}")
            time.sleep(0.01)

    def stop(self, kill: bool = True) -> None:
        """Kill it with SIGKILL, or ask it to end."""
        if self._process is not None:
            if kill:
                self._process.kill()
            else:
                self._process.terminate()
            self._process.wait(READY_WITHIN)
            self._process = None
            (self._folder / "pid").unlink(missing_ok=True)

    def restart(self, kill: bool = True) -> None:
        """Stop and start, on the same port."""
        self.stop(kill)
        self.start()

    def flush(self) -> None:
        """FLUSHALL: as if nothing had ever been written."""
        self.command("FLUSHALL")

    def close(self) -> None:
        """Kill it and throw everything away."""
        atexit.unregister(self.close)
        self.stop()
        self._guard.communicate(timeout=READY_WITHIN)

    def command(self, line: str) -> bytes:
        """Send a command; the first line of its answer."""
        return self.ask(line).partition(b"\r\n")[0]

    def ask(self, line: str) -> bytes:
        """Send a command; its answer as it is on the wire."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=READY_WITHIN) as connection:
            connection.sendall(line.encode() + b"\r\nQUIT\r\n")
            return connection.makefile("rb").read()


class RedisCluster:
    """Three nodes of a Redis Cluster without replicas; each has a third of the slots."""

    def __init__(self) -> None:
        self.nodes = [Redis(cluster=True) for _ in range(3)]
        self.url = f"{self.nodes[0].url}?cluster=true"
        bounds = [0, 5461, 10923, 16384]
        for node, first, end in zip(self.nodes, bounds, bounds[1:], strict=False):
            node.command(f"CLUSTER ADDSLOTSRANGE {first} {end - 1}")
            self.nodes[0].command(f"CLUSTER MEET 127.0.0.1 {node.port} {node.cluster_port}")
        self.wait()

    def wait(self) -> None:
        """Wait until every node knows where every slot is."""
        deadline = time.monotonic() + READY_WITHIN
        for node in self.nodes:
            while b"cluster_state:ok" not in node.ask("CLUSTER INFO"):
                if time.monotonic() > deadline:
                    raise ServiceError("The Redis Cluster did not come together.")
                time.sleep(0.02)

    def move(self, slot: int, owner: Redis, to: Redis) -> None:
        """Give a slot to another node; what is in it is thrown away."""
        name, old = (node.ask("CLUSTER MYID").split()[1].decode() for node in (to, owner))
        for node in self.nodes:
            node.command("FLUSHALL")
        # A node that imports the slot announces it with a new epoch, which the others believe.
        to.command(f"CLUSTER SETSLOT {slot} IMPORTING {old}")
        owner.command(f"CLUSTER SETSLOT {slot} MIGRATING {name}")
        for node in sorted(self.nodes, key=lambda one: one is not to):
            node.command(f"CLUSTER SETSLOT {slot} NODE {name}")

    def close(self) -> None:
        """Kill the nodes and throw everything away."""
        for node in self.nodes:
            node.close()


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[RedisCluster]:
    """A Redis Cluster; what a test leaves in it stays."""
    cluster = RedisCluster()
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def _postgres_server() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="session")
def _postgres_replica(_postgres_server: Postgres) -> Iterator[Postgres]:
    _postgres_server.start()
    replica = Postgres(primary=_postgres_server)
    yield replica
    replica.close()


@pytest.fixture
def postgres_replica(_postgres_replica: Postgres) -> Postgres:
    """A replica of `postgres`, running."""
    _postgres_replica.start()
    return _postgres_replica


@pytest.fixture(scope="session")
def _redis_server() -> Iterator[Redis]:
    server = Redis()
    yield server
    server.close()


@pytest.fixture
def postgres(_postgres_server: Postgres) -> Postgres:
    """The shared PostgreSQL server, up whatever the last test did to it."""
    _postgres_server.start()
    return _postgres_server


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """The shared server with a schema of one's own: as empty as a database, and free of charge."""
    return postgres.schema()


@pytest.fixture
def redis(_redis_server: Redis) -> Redis:
    """The shared Redis server, up and empty."""
    _redis_server.start()
    _redis_server.flush()
    return _redis_server


@pytest.fixture
def redis_url(redis: Redis) -> str:
    """The address of the shared Redis, which is empty."""
    return redis.url


def _folder(name: str) -> Path:
    # Not pytest's own folder: only its owner may enter that folder.
    return Path(tempfile.mkdtemp(prefix=f"tailrace-{name}-"))


def _guard(folder: Path, ending: str, user: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Ends a server and removes its folder when we say so, or when we were killed.

    It waits for its input to end, which happens either way. Thousands of files take a while to be
    removed, and that is not waited for.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", f'cat >/dev/null; {ending}; cd /; rm -rf "$0" &', folder],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **user,
    )


def _free_port() -> int:
    # Below the range of outgoing connections: a client that retries while the server is down could
    # otherwise be given the very port it calls, reach itself, and keep the server from returning.
    for port in random.sample(range(20_000, 32_000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServiceError("No free port between 20000 and 32000.")


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServiceError("PostgreSQL refuses to run as root, and there is no user `postgres`.")


def _postgres_programs(*names: str) -> list[str]:
    """The programs of one installation; Debian keeps them out of the PATH, one folder a version."""
    folders = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(versions, key=lambda folder: float(folder.parent.name), reverse=True)
    for folder in folders:
        programs = [folder / name for name in names]
        if all(program.exists() for program in programs):
            return [str(program) for program in programs]
    return [_program("initdb", "PostgreSQL", "postgresql")]


def _program(name: str, product: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ServiceError(
            f"{product} is not installed, and these tests need a real one: run scripts/services, or"
            f" install {name} (Debian's package is {package}) and put it on the PATH."
        )
    return found
