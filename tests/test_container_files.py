"""What the image and its services promise, read from their files: no Docker engine is needed.

The linter and compose itself look at the same files where they are there (docker/check-compose.sh brings them).
"""

import http.server
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from grader.gpu.unfit import COMPILER_PACKAGES

ROOT = Path(__file__).parents[1]
SERVICES = ("lab", "instructor", "judge")


# -- docker-compose.yml -------------------------------------------------------------------------------------


class ComposeLoader(yaml.SafeLoader):
    """YAML with compose's own tags: ``!reset`` becomes the word "reset"."""


ComposeLoader.add_constructor("!reset", lambda loader, node: "reset")


def load(name: str) -> dict:
    # The loader is safe: it is PyYAML's SafeLoader and one tag that makes a string.
    return yaml.load((ROOT / name).read_text(), Loader=ComposeLoader)


@pytest.fixture(scope="module")
def services() -> dict[str, dict]:
    return load("docker-compose.yml")["services"]


def test_the_services_are_those_that_are_checked_here(services: dict[str, dict]) -> None:
    assert tuple(services) == SERVICES


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_locked_down(services: dict[str, dict], name: str) -> None:
    service = services[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["user"] == "1000:1000"
    assert service["pids_limit"] > 0
    for forbidden in ("privileged", "pid", "ipc", "devices", "userns_mode"):
        assert forbidden not in service


@pytest.mark.parametrize("name", SERVICES)
def test_a_port_is_published_on_this_machine_only(services: dict[str, dict], name: str) -> None:
    for port in services[name].get("ports", []):
        assert port.startswith("127.0.0.1:")
    assert services[name].get("network_mode") in (None, "none")


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_reaches_the_docker_engine_or_a_host_folder_to_write(
    services: dict[str, dict], name: str
) -> None:
    named = load("docker-compose.yml")["volumes"]
    for volume in services[name].get("volumes", []):
        assert "docker.sock" not in volume
        assert volume.split(":")[0] in named or volume.endswith(":ro")


@pytest.mark.parametrize("name", SERVICES)
def test_what_must_be_writable_is_in_memory_and_the_students(services: dict[str, dict], name: str) -> None:
    folders = dict(entry.split(":", 1) for entry in services[name]["tmpfs"])
    assert "exec" in folders["/tmp"].split(",")  # compiled kernels are loaded from there
    assert all("size=" in options for options in folders.values())
    for folder, options in folders.items():
        if folder.startswith("/home"):
            assert "uid=1000,gid=1000" in options


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_reserves_the_gpu_and_the_cpu_file_takes_it_back(services: dict[str, dict], name: str) -> None:
    (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert load("docker/compose.cpu.yml")["services"][name] == {"deploy": "reset"}


def test_up_starts_the_labs_only(services: dict[str, dict]) -> None:
    assert "profiles" not in services["lab"]
    assert services["instructor"]["profiles"] == ["instructor"]
    assert services["judge"]["profiles"] == ["judge"]


def test_the_judge_has_no_network_and_is_bounded(services: dict[str, dict]) -> None:
    judge = services["judge"]
    assert judge["network_mode"] == "none"
    assert "ports" not in judge
    assert judge["mem_limit"] == judge["memswap_limit"]
    assert judge["pids_limit"] <= 512


def test_every_setting_has_a_default_and_stands_in_the_example() -> None:
    used = re.findall(r"\$\{(\w+)(:-)?", (ROOT / "docker-compose.yml").read_text())
    assert all(default for _name, default in used), "docker compose up must work without a .env"
    listed = re.findall(r"^(\w+)=", (ROOT / ".env.example").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted({name for name, _default in used})


# -- Dockerfile ---------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """A stage of the Dockerfile: its instructions as (word, rest), and what it copies from the build context."""

    parent: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def copied(self) -> list[str]:
        words = [rest.split() for word, rest in self.instructions if word == "COPY"]
        return [source for line in words if not line[0].startswith("--from") for source in line[:-1]]


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    stages: dict[str, Stage] = {}
    for line in filter(None, lines):
        word, _space, rest = line.partition(" ")
        if word == "FROM":
            parent, _as, name = rest.split()
            stages[name] = stage = Stage(parent)
        elif stages:
            stage.instructions.append((word, rest))
    return stages


def values(stage: Stage, word: str) -> list[str]:
    return [rest for found, rest in stage.instructions if found == word]


def test_the_stages_are_those_that_are_checked_here(stages: dict[str, Stage]) -> None:
    parents = {name: stage.parent for name, stage in stages.items()}
    expected = {"public": "base", "student": "base", "instructor": "base"}
    assert parents == {"base": "${BASE_IMAGE}", **expected}


def test_the_student_image_takes_only_what_is_named(stages: dict[str, Stage]) -> None:
    """No solutions, no tests, and of grader/ only what the stage `public` leaves of it."""
    assert stages["base"].copied == ["requirements.lock"]
    allowed = {"pyproject.toml", "requirements.lock", "README.md", "LICENSE", "labs/"}
    assert set(stages["student"].copied) - allowed == {"docker/entrypoint.sh", "docker/healthcheck.py"}
    from_stages = [rest for rest in values(stages["student"], "COPY") if "--from" in rest]
    assert from_stages == ["--from=public /opt/tilelang-labs/grader/ grader/"]


def test_private_checks_are_deleted_before_the_student_image_copies_the_grader(stages: dict[str, Stage]) -> None:
    assert stages["public"].copied == ["grader/"]
    (deletion,) = values(stages["public"], "RUN")
    assert deletion.startswith("rm -rf grader/autograders/private;")
    assert 'test -z "$(find . -name private)"' in deletion


def test_the_instructor_image_has_the_whole_course(stages: dict[str, Stage]) -> None:
    assert {"grader/", "labs/", "solutions/", "tests/"} <= set(stages["instructor"].copied)


@pytest.mark.parametrize("name", ["student", "instructor"])
def test_an_image_ends_as_a_user_without_rights(stages: dict[str, Stage], name: str) -> None:
    assert values(stages[name], "USER") == ["1000"]
    last_words = [word for word, _rest in stages[name].instructions[-2:]]
    assert last_words == ["USER", "WORKDIR"]


@pytest.mark.parametrize("name", ["student", "instructor"])
def test_a_changed_notebook_rebuilds_one_copy(stages: dict[str, Stage], name: str) -> None:
    instructions = stages[name].instructions
    after_labs = instructions[instructions.index(("COPY", "labs/ labs/")) + 1 :]
    assert not [rest for word, rest in after_labs if word in ("RUN", "COPY")]


def test_the_base_has_what_docker_and_nvidia_look_for(stages: dict[str, Stage]) -> None:
    base = stages["base"]
    assert values(base, "HEALTHCHECK")
    assert values(base, "ENTRYPOINT") == ['["tini", "--", "/opt/tilelang-labs/docker/entrypoint.sh"]']
    assert any("NVIDIA_VISIBLE_DEVICES=all" in env for env in values(base, "ENV"))
    assert any("NVIDIA_DRIVER_CAPABILITIES=compute,utility" in env for env in values(base, "ENV"))
    assert any("org.opencontainers.image.title" in label for label in values(base, "LABEL"))


def test_the_doctor_names_the_compiler_that_the_image_installs(stages: dict[str, Stage]) -> None:
    assert any(f'pip install "{COMPILER_PACKAGES}"' in run for run in values(stages["base"], "RUN"))


def test_the_lock_file_installs_on_the_base_image() -> None:
    """bookworm's Python is 3.11.2, and a package that asks for 3.11.5 can't be installed there."""
    assert "ARG BASE_IMAGE=debian:bookworm-slim" in (ROOT / "Dockerfile").read_text()
    lock = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    compared, refused = 0, []
    for name, version in lock:
        try:
            package = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if Version(package["Version"]).public != version:
            continue
        compared += 1
        wants = package.get("Requires-Python") or ""
        if "3.11.2" not in SpecifierSet(wants):
            refused.append(f"{name} {version} needs Python {wants}")
    assert compared > 50, "too few of the locked packages are installed here to say anything"
    assert refused == []


def test_the_dockerfile_needs_no_frontend_from_a_registry() -> None:
    assert "syntax=" not in (ROOT / "Dockerfile").read_text()


def test_the_build_context_is_a_list_of_what_may_go_in() -> None:
    lines = [x for x in (ROOT / ".dockerignore").read_text().splitlines() if x and not x.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert allowed == {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "requirements.lock",
        "docker",
        "grader",
        "labs",
        "solutions",
        "tests",
    }


# -- docker/*.sh, healthcheck.py ----------------------------------------------------------------------------


@pytest.fixture
def fake_tilelab(tmp_path: Path) -> dict[str, str]:
    """An environment whose ``tilelab`` prints its arguments; its ``doctor`` finds a problem."""
    program = tmp_path / "tilelab"
    program.write_text('#!/bin/sh\necho "tilelab $*"\n[ "$1" != doctor ]\n')
    program.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def entrypoint(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "docker/entrypoint.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)


def test_a_container_starts_the_labs_whatever_the_doctor_finds(fake_tilelab: dict[str, str]) -> None:
    done = entrypoint({**fake_tilelab, "PORT": "9000"})
    assert done.returncode == 0
    doctor, notice, lab = done.stdout.splitlines()
    assert doctor == "tilelab doctor"
    assert notice.startswith("Starting all the same")
    assert lab.startswith("tilelab lab --ip 0.0.0.0 --port 9000 --work /home/student/work ")


def test_a_container_runs_the_command_that_it_is_given(fake_tilelab: dict[str, str]) -> None:
    done = entrypoint(fake_tilelab, "sh", "-c", 'echo "$1"; exit 7', "sh", "two words")
    assert (done.returncode, done.stdout) == (7, "two words\n")


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/api" else 404)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing: pytest's output is not this server's log."""


@pytest.fixture
def server() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def healthcheck(port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "docker/healthcheck.py")]
    environment = {**os.environ, "PORT": str(port)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)


def test_the_healthcheck_passes_while_the_server_answers(server: int) -> None:
    assert healthcheck(server).returncode == 0


def test_the_healthcheck_fails_and_says_why_when_nothing_answers() -> None:
    done = healthcheck(1)
    assert done.returncode == 1
    assert "doesn't answer" in done.stderr


# -- the tools' own word ------------------------------------------------------------------------------------


def test_hadolint_finds_nothing() -> None:
    beside_python = Path(sys.executable).parent / "hadolint"
    hadolint = str(beside_python) if beside_python.exists() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed; docker/check-compose.sh is the step that insists on it")
    done = subprocess.run(
        [hadolint, "Dockerfile"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def has_compose() -> bool:
    try:
        done = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=20, check=False)
    except OSError:
        return False
    return done.returncode == 0


@pytest.mark.parametrize("more", [(), ("-f", "docker/compose.cpu.yml")], ids=["gpu", "cpu"])
def test_compose_accepts_the_files(more: tuple[str, ...]) -> None:
    if not has_compose():
        pytest.skip("no 'docker compose' here; docker/check-compose.sh fetches it and makes the same check")
    files = ["-f", "docker-compose.yml", *more]
    command = ["docker", "compose", "--env-file", ".env.example", "--profile", "*", *files, "config", "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
