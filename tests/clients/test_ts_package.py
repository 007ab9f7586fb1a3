"""The TypeScript client as its users get it: packed, installed, imported and type-checked."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.node import CLIENT_TS, node_env, node_path, run_node
from tests.serving import Served

PROGRAM = """
import { RunState, type TaskView } from "@tailrace/client";

const state = new RunState();
state.apply({ type: "task.created", task_id: "run_1", sequence_number: 1, agent: "weather" });
const view: TaskView | undefined = state.view();
export const agent: string | undefined = view?.agent;
"""

SCRIPT = """
import { RunState } from "@tailrace/client";

const state = new RunState();
state.apply({ type: "task.created", task_id: "run_1", sequence_number: 1, agent: "weather" });
console.log(JSON.stringify(state.view()));
"""

STRICT = ["--strict", "--noEmit", "--skipLibCheck", "false", "--exactOptionalPropertyTypes"]


def npm(*args: str | Path, cwd: Path) -> None:
    """Run the npm of the development requirements, without the network."""
    library = node_path().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [node_path(), library, *args, "--offline", "--no-audit", "--no-fund"]
    done = subprocess.run(
        command, cwd=cwd, env=node_env(), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has installed the packed client, and nothing else."""
    folder = tmp_path_factory.mktemp("ts-project")
    npm("pack", "--ignore-scripts=false", "--pack-destination", folder, cwd=CLIENT_TS)
    (tarball,) = folder.glob("*.tgz")
    (folder / "package.json").write_text('{"name": "app", "type": "module", "private": true}')
    npm("install", tarball, cwd=folder)
    return folder


def test_the_packed_client_runs_in_node(project: Path) -> None:
    (project / "main.js").write_text(SCRIPT)
    assert run_node([project / "main.js"], cwd=project) == (
        '{"task_id":"run_1","agent":"weather","status":"queued","output":[]}\n'
    )


@pytest.mark.parametrize("resolution", ["nodenext", "bundler"])
def test_the_packed_client_has_types_that_strict_projects_accept(
    project: Path, resolution: str
) -> None:
    (project / "main.ts").write_text(PROGRAM)
    module = "nodenext" if resolution == "nodenext" else "esnext"
    compiler = CLIENT_TS / "node_modules" / "typescript" / "bin" / "tsc"
    options = ["--module", module, "--moduleResolution", resolution, "--target", "es2022"]
    run_node([compiler, *STRICT, *options, "main.ts"], cwd=project)


def test_the_programs_of_the_readme_are_of_the_right_types_and_run(
    project: Path, tmp_path: Path
) -> None:
    text = (CLIENT_TS / "README.md").read_text(encoding="utf-8")
    folding, following = re.findall(r"```ts\n(.*?)```", text, re.DOTALL)
    given = "declare function render(view: unknown): void; declare const key: string;\n"
    (project / "folding.ts").write_text(given + folding)
    (project / "following.ts").write_text(given + following)
    compiler = CLIENT_TS / "node_modules" / "typescript" / "bin" / "tsc"
    options = ["--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022"]
    run_node([compiler, *STRICT, *options, "folding.ts", "following.ts"], cwd=project)
    served = Served(tmp_path / "log.db")
    try:
        program = following.replace("https://example.com/ai/", served.url)
        (project / "following.mjs").write_text(f'const key = "";\n{program}')
        shown = run_node([project / "following.mjs"], cwd=project).splitlines()
    finally:
        served.kill()
    assert shown[:2] == ["connecting undefined", "live undefined"]
    assert shown[2:] == ["ended completed"]


def test_the_package_holds_only_what_was_built(project: Path) -> None:
    installed = project / "node_modules" / "@tailrace" / "client"
    files = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert {name for name in files if not name.startswith("dist/")} == {"package.json", "README.md"}
    assert {Path(name).suffixes[-1] for name in files if name.startswith("dist/")} == {".js", ".ts"}
    assert not [name for name in files if name.endswith(".ts") and not name.endswith(".d.ts")]
