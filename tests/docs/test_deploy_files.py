"""The files of `deploy/` agree with each other and with the program, as far as can be checked without running them."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import typer.main
import yaml
from mcp_types.version import LATEST_MODERN_VERSION

from raincheck.cli.app import program
from raincheck.engine.settings import Settings
from raincheck.engine.worker.supervisor import UNWIND_TIMEOUT
from raincheck.server.http.server import KEEP_ALIVE_TIMEOUT
from raincheck.stores.postgres import parse_url
from tests.support.docs.pages import ROOT, text_of

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NGINX = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
OUR_SERVICES = ("migrate", "server-1", "server-2", "worker")
SERVERS = ("server-1", "server-2")


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)?", str(text)).groups()  # pyright: ignore[reportOptionalMemberAccess] - it matches, or the test fails
    return int(number) * {"ms": 0.001, None: 1, "s": 1, "m": 60, "h": 3_600}[unit]


def parsed(words: list[str]) -> dict[str, Any]:
    """Parse a command as the program does, which rejects unknown options."""
    assert Path(words[0]).name == "raincheck"
    command = cast("Any", typer.main.get_command(program)).get_command(None, words[1])
    with command.make_context(words[1], words[2:]) as context:
        return context.params


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",), delimiters=("=",))
    parser.optionxform = lambda optionstr: optionstr
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


def environment_of(path: Path) -> dict[str, str]:
    lines = (line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)


def every_command() -> list[list[str]]:
    example = environment_of(DEPLOY / "systemd" / "environment.example")
    starts = [unit(path)["Service"]["ExecStart"].replace("%i", "8001") for path in UNITS]
    for name, value in example.items():
        starts = [start.replace(f"${{{name}}}", value) for start in starts]
    (image,) = re.findall(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)
    tests = [service["healthcheck"]["test"][1:] for service in SERVICES.values() if "healthcheck" in service]
    return [
        *(SERVICES[name]["command"] for name in OUR_SERVICES),
        *(test for test in tests if test[0] == "raincheck"),
        json.loads(image),
        *map(shlex.split, starts),
    ]


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_of_the_deployment_is_valid(words: list[str]) -> None:
    parameters = parsed(words)
    assert parameters.get("target") in (None, "reports.py")


def test_the_deployment_has_two_servers_without_workers_and_three_workers() -> None:
    assert set(SERVICES) == {"postgres", "proxy", *OUR_SERVICES}
    for name in SERVERS:
        assert parsed(SERVICES[name]["command"])["no_work"] is True
    assert SERVICES["worker"]["command"][1] == "worker"
    assert SERVICES["worker"]["deploy"]["replicas"] == 3


def test_migrations_run_after_the_database_starts_and_before_its_users() -> None:
    assert SERVICES["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert SERVICES["migrate"]["restart"] == "on-failure"
    for name in (*SERVERS, "worker"):
        assert SERVICES[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    assert set(SERVICES["proxy"]["depends_on"]) == set(SERVERS)


def test_names_agree_across_the_files() -> None:
    assert re.findall(r"^\s+server (\S+?):(\d+)", NGINX, re.MULTILINE) == [(name, "8000") for name in SERVERS]
    for name in SERVERS:
        assert parsed(SERVICES[name]["command"])["http"] == "0.0.0.0:8000"
        assert SERVICES[name]["expose"] == ["8000"]
    assert "EXPOSE 8000" in DOCKERFILE
    (listens,) = re.findall(r"listen (\d+);", NGINX)
    (port,) = SERVICES["proxy"]["ports"]
    assert port == f"${{RAINCHECK_PORT:-8080}}:{listens}"
    assert f":{listens}/healthz" in SERVICES["proxy"]["healthcheck"]["test"][-1]
    assert SERVICES["proxy"]["volumes"] == ["./nginx.conf:/etc/nginx/nginx.conf:ro"]
    for source in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / path).exists() for path in source.split())
    for name in OUR_SERVICES:
        build = SERVICES[name]["build"]
        assert (DEPLOY / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")


def test_the_store_is_the_database_that_is_started() -> None:
    started = SERVICES["postgres"]["environment"]
    for name in OUR_SERVICES:
        target = parse_url(SERVICES[name]["environment"]["RAINCHECK_STORE"])
        assert target.display_url == f"postgresql://postgres:5432/{started['POSTGRES_DB']}"
        assert f"user={started['POSTGRES_USER']} " in target.conninfo
        assert SERVICES[name]["environment"]["PGPASSWORD"] == started["POSTGRES_PASSWORD"]


def test_no_committed_file_has_a_secret() -> None:
    variables = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text(encoding="utf-8")))
    example = environment_of(DEPLOY / "env.example")
    assert variables == set(example)
    assert example["RAINCHECK_DB_PASSWORD"] == ""
    assert environment_of(DEPLOY / "systemd" / "environment.example")["PGPASSWORD"] == ""
    assert ".env" in (DEPLOY / ".gitignore").read_text(encoding="utf-8").split()
    for name in OUR_SERVICES:
        # With `:?`, it does not start where there is none.
        assert SERVICES[name]["environment"]["PGPASSWORD"].startswith("${RAINCHECK_DB_PASSWORD:?")


def test_stop_timeouts_exceed_the_grace_period() -> None:
    takes = Settings().grace + UNWIND_TIMEOUT
    for name in OUR_SERVICES:
        assert seconds(SERVICES[name]["stop_grace_period"]) > takes
    for path in UNITS:
        assert seconds(unit(path)["Service"]["TimeoutStopSec"]) > takes


def test_the_database_allows_the_connections_of_a_rolling_update() -> None:
    (allowed,) = (int(word.partition("=")[2]) for word in SERVICES["postgres"]["command"] if "max_connections" in word)
    each = len(SERVERS) * 10 + SERVICES["worker"]["deploy"]["replicas"] * 15
    assert allowed >= 2 * each + 3


def test_the_proxy_does_not_buffer_streams_and_closes_idle_connections_first() -> None:
    settings = dict(re.findall(r"^\s+(\w+) ([^;{]+);", NGINX, re.MULTILINE))
    assert settings["proxy_buffering"] == "off"
    assert settings["gzip"] == "off"
    assert seconds(settings["proxy_read_timeout"]) >= 3_600
    assert seconds(settings["keepalive_timeout"]) < KEEP_ALIVE_TIMEOUT
    assert (settings["proxy_http_version"], settings["proxy_set_header"].split()[0]) == ("1.1", "X-Forwarded-Proto")
    assert 'proxy_set_header Connection "";' in NGINX
    (anywhere,) = re.findall(r'^\s+"(\S+)" \$request_id;$', NGINX, re.MULTILINE)
    assert anywhere == LATEST_MODERN_VERSION
    assert settings["hash"] == "$spread consistent"
    assert "non_idempotent" not in settings["proxy_next_upstream"]
    assert NGINX.count("{") == NGINX.count("}")


def test_no_service_runs_as_root() -> None:
    (user,) = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert user != "root"
    assert re.search(rf"useradd .*{user}$", DOCKERFILE, re.MULTILINE)
    assert DOCKERFILE.index("pip install '/tmp") < DOCKERFILE.index("USER ") < DOCKERFILE.index("CMD ")
    for path in UNITS:
        assert unit(path)["Service"]["User"] == "raincheck"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_restarts_always_and_stops_with_sigterm(path: Path) -> None:
    service = unit(path)["Service"]
    assert (service["Type"], service["Restart"], service["KillSignal"]) == ("simple", "always", "SIGTERM")
    assert service["EnvironmentFile"] == "/etc/raincheck/environment"
    example = environment_of(DEPLOY / "systemd" / "environment.example")
    assert set(re.findall(r"\$\{(\w+)\}", service["ExecStart"])) <= set(example)
    assert {"NoNewPrivileges", "ProtectSystem", "CapabilityBoundingSet"} <= set(service)
    assert unit(path)["Install"]["WantedBy"] == "multi-user.target"
    parse_url(example["RAINCHECK_STORE"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    # The program is not where they say, on this machine.
    stands_in = shutil.which("true")
    for path in UNITS:
        text = path.read_text(encoding="utf-8").replace("/opt/reports/venv/bin/raincheck", str(stands_in))
        (tmp_path / path.name).write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in found.stderr.splitlines() if "raincheck" in line] == []
    assert found.returncode == 0, found.stderr


def test_the_deployed_server_gets_its_store_from_the_environment() -> None:
    # In a separate process: a loaded module stays loaded, and other tests load files of the same name.
    program = (
        "import sys; from raincheck.cli.loader import load_tasks; tasks = load_tasks(sys.argv[1]); "
        "print(tasks.server.name, tasks.options.store, float(tasks.options.settings.grace))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(DEPLOY / "reports.py")], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["reports", "None", str(Settings().grace)]


def test_the_guide_names_every_file() -> None:
    page = text_of(ROOT / "docs/howto/deploy-many-machines.md")
    names = [path.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*") if path.is_file()]
    for name in names:
        if not name.startswith(".") and "__pycache__" not in name:
            assert f"deploy/{name}" in page, f"{name} is not on the page"
