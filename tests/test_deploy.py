"""The files of a deployment agree with the settings and with each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tailrace.settings import SETTINGS

ROOT = Path(__file__).parents[1]
FILES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in ("Dockerfile", "compose.yaml", "deploy/nginx.conf", ".dockerignore")
}


def test_every_variable_of_the_files_is_a_setting() -> None:
    known = {setting.variable for setting in SETTINGS.values()}
    for name, text in FILES.items():
        for variable in re.findall(r"\bTAILRACE_[A-Z_]+\b", text):
            assert variable in known | {"TAILRACE_PUBLISH"}, f"{name}: {variable}"


def test_servers_and_workers_get_the_keys_of_providers_and_need_none() -> None:
    """An empty default keeps compose from a warning, and an empty key counts as none."""
    shared = FILES["compose.yaml"].partition("environment: &environment\n")[2].partition("\n  v")[0]
    for name in ("MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        assert f"    {name}: ${{{name}:-}}\n" in f"{shared}\n"


def test_the_commands_of_the_page_are_those_of_the_compose_file() -> None:
    page = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")
    commands = re.findall(r"^#   (\S.*?)(?:  #.*)?$", FILES["compose.yaml"], re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert f"\n{command}\n" in page


def test_the_image_runs_without_root_and_asks_whether_it_is_ready() -> None:
    build, _, final = FILES["Dockerfile"].rpartition("\n\nFROM ")
    assert "--require-hashes" in build
    assert re.search(r"^USER [1-9]\d+$", final, re.MULTILINE)
    assert "/ready" in final.partition("HEALTHCHECK")[2]
    assert 'ENTRYPOINT ["tailrace"]' in final
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", FILES["Dockerfile"], re.MULTILINE):
        for one in copied.split():
            assert (ROOT / one).exists(), one
            assert f"!{one}\n" in FILES[".dockerignore"], one


def test_the_image_pins_everything_that_the_package_needs() -> None:
    pins = (ROOT / "requirements" / "server.txt").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = re.findall(r"[a-z-]+", extras["all"][0].partition("[")[2])
    assert {*named, "all"} == set(extras)
    wanted = [*project["dependencies"], *(one for name in named for one in extras[name])]
    for package in ("hatchling", *(re.split(r"[\[>;]", one)[0] for one in wanted)):
        assert re.search(rf"^{package}(\[\w+\])?==", pins, re.MULTILINE), package


def test_nginx_names_every_server_of_the_compose_file() -> None:
    compose, nginx = FILES["compose.yaml"], FILES["deploy/nginx.conf"]
    servers = re.findall(r"^  (\S+): \*server$", compose, re.MULTILINE)
    assert len(servers) == 2
    assert re.findall(r"server (\S+):8000", nginx) == servers
    assert len(re.findall(r"^  \S+: \*worker$", compose, re.MULTILINE)) == 2
    [module] = set(re.findall(r"\b(examples\.\w+):app", compose))
    assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    assert "proxy_buffering off" in nginx
