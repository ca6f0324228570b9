"""``tilelab lab``: JupyterLab on the student's own copies of the labs.

The copies lie in ``work/``, are made when they are missing, and are never overwritten once they differ from what
was shipped. The server asks for a token, listens on this machine only, and fetches nothing from outside.
"""

import hashlib
import importlib.util
import ipaddress
import json
import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn
from urllib.parse import quote

import typer

import grader
from grader.doctor import device
from grader.doctor.machine import port_trouble
from grader.messages import _

PORTS_TO_TRY = 20

NBGRADER_PAGES = (
    "assignment-list",
    "course-list",
    "create-assignment",
    "formgrader",
    "menu",
    "validate-assignment",
)

OURS = ".tilelab"
"""Folder in the work folder, hidden in JupyterLab, for what isn't the student's: manifest and settings."""


def lab(
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of JupyterLab; the next free one if it is taken.")
    ] = 8888,
    browser: Annotated[bool, typer.Option("--browser", help="Open a browser too.")] = False,
    ip: Annotated[
        str, typer.Option(help="IPv4 address to listen on. Others than 127.0.0.1 are for containers.")
    ] = "127.0.0.1",
    work: Annotated[Path, typer.Option(help="Folder of your copies of the labs.")] = Path("work"),
    labs: Annotated[
        Path | None, typer.Option(help="Folder of the labs as shipped.", show_default="the project's labs/")
    ] = None,
) -> None:
    """Start JupyterLab with your copies of the labs."""
    if importlib.util.find_spec("jupyterlab") is None:
        message = _("JupyterLab is not installed here. Run '{python} -m pip install -r requirements.lock' first.")
        _stop(message.format(python=sys.executable))
    notebooks = _shipped_notebooks(labs)
    work = work.absolute()
    try:
        laid_out = lay_out(notebooks, work)
    except OSError as error:
        message = _(
            "Your copies of the labs can't be laid out in {work}: {error}. Name another folder with --work."
        )
        _stop(message.format(work=work, error=f"{error.strerror} ({error.filename})"))
    free, trouble = _usable_port(ip, port)
    token = os.environ.get("JUPYTER_TOKEN") or secrets.token_urlsafe(24)

    for line in laid_out:
        typer.echo(line)
    if free != port:
        message = _(
            "Port {port} can't be used ({trouble}; does another JupyterLab run?), so this one uses {free}."
        )
        typer.echo(message.format(port=port, trouble=trouble, free=free))
    typer.echo(_("Your notebooks are in {work}").format(work=work))
    typer.echo(_("Kernels are judged by: {device}").format(device=device()))
    typer.echo(_("Open this address in a browser (Ctrl-C here ends JupyterLab):"))
    shown = "127.0.0.1" if ip == "0.0.0.0" else ip
    first = f"{notebooks[0].stem}/{notebooks[0].name}"
    typer.echo(f"\n    http://{shown}:{free}/lab/tree/{quote(first)}?token={quote(token)}\n")
    sys.stdout.flush()
    _become_jupyterlab(ip, free, token, work, browser)


# -- the student's copies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """What a copy came from: SHA-256 of the shipped notebook, and of the newest one laid beside it, if any."""

    copied: str
    beside: str = ""


def lay_out(notebooks: list[Path], work: Path) -> list[str]:
    """Give the student a copy of every lab. Says, a sentence a lab, what a student should know of it.

    A missing copy is made. When the shipped lab has changed, a copy that the student never touched is renewed;
    beside one that differs, the new version is laid as ``<lab>.new-version.ipynb``. OSError if ``work`` can't be
    written.
    """
    (work / OURS).mkdir(parents=True, exist_ok=True)
    origins, said = _read_origins(work)
    for shipped in notebooks:
        origin, sentence = _lay_out_one(shipped, work / shipped.stem / shipped.name, origins.get(shipped.stem))
        origins[shipped.stem] = origin
        said += [sentence] if sentence else []
    _write_origins(work, origins)
    return said


def _lay_out_one(shipped: Path, copy: Path, origin: Origin | None) -> tuple[Origin, str]:
    new = shipped.read_bytes()
    digest = _sha256(new)
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        _write_new(copy, new)
        return Origin(digest), ""
    mine = _sha256(copy.read_bytes())
    if mine == digest:
        return Origin(digest), ""
    if origin is not None and digest in (origin.copied, origin.beside):
        return origin, ""
    if origin is not None and mine == origin.copied:
        _replace(copy, new)
        return Origin(digest), _(
            "{lab} has a new version; you had not begun it, so your copy is the new one."
        ).format(lab=shipped.stem)
    beside = _lay_beside(copy, new)
    message = _("{lab} has a new version. Your copy is untouched; the new one is beside it as {file}.")
    copied = origin.copied if origin else mine
    return Origin(copied, beside=digest), message.format(lab=shipped.stem, file=beside.name)


def _lay_beside(copy: Path, new: bytes) -> Path:
    """Write the new version to the first name that is free: an earlier one may hold the student's work by now."""
    number = 1
    while True:
        suffix = "" if number == 1 else f"-{number}"
        beside = copy.with_name(f"{copy.stem}.new-version{suffix}.ipynb")
        if not beside.exists():
            _write_new(beside, new)
            return beside
        number += 1


def _read_origins(work: Path) -> tuple[dict[str, Origin], list[str]]:
    """The manifest. Without a readable one, every copy that differs counts as the student's."""
    path = work / OURS / "labs.json"
    if not path.exists():
        return {}, []
    try:
        return {name: Origin(**origin) for name, origin in json.loads(path.read_text()).items()}, []
    except (ValueError, TypeError, AttributeError) as error:
        message = _(
            "{path} can't be read ({error}), so it is made anew; copies that you changed stay as they are."
        )
        return {}, [message.format(path=path, error=error)]


def _write_origins(work: Path, origins: dict[str, Origin]) -> None:
    text = json.dumps({name: vars(origin) for name, origin in sorted(origins.items())}, indent=2)
    _replace(work / OURS / "labs.json", text.encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet: whatever happens, nothing of the student's is overwritten."""
    with path.open("xb") as file:
        file.write(content)


def _replace(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that a full disk or a kill leaves the old one whole."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def _shipped_notebooks(labs: Path | None) -> list[Path]:
    """Every ``labs/<lab>/<lab>.ipynb``, in order; where ``labs`` isn't named, here, else beside ``grader``."""
    beside_package = Path(grader.__file__).parents[1] / "labs"
    folder = labs or (Path("labs") if Path("labs").is_dir() else beside_package)
    notebooks = sorted(path for path in folder.glob("*/*.ipynb") if path.stem == path.parent.name)
    if not notebooks:
        message = _(
            "There are no labs in {folder}. Start this in the project's folder, or make them there with "
            "'tilelab build'."
        )
        _stop(message.format(folder=folder.absolute()))
    return notebooks


# -- the server ---------------------------------------------------------------------------------------------


def _usable_port(ip: str, port: int) -> tuple[int, str]:
    """``port`` and "", or the next usable port and why ``port`` is not.

    A container publishes one port only, so on other addresses than this machine's own it must be that one.
    """
    try:
        on_this_machine = ipaddress.IPv4Address(ip).is_loopback
    except ValueError:
        _stop(_("'{ip}' is no IPv4 address. Leave --ip out, or use --ip 0.0.0.0 in a container.").format(ip=ip))
    trouble = port_trouble(ip, port)
    if not trouble:
        return port, ""
    last = min(port + PORTS_TO_TRY, 65535) if on_this_machine else port
    for candidate in range(port + 1, last + 1):
        if not port_trouble(ip, candidate):
            return candidate, trouble
    message = _("No port from {port} to {last} of {ip} can be used ({trouble}). Name another one with --port.")
    if last == port:
        message = _("Port {port} of {ip} can't be used ({trouble}). Name another one with --port.")
    _stop(message.format(port=port, last=last, ip=ip, trouble=trouble))


def _become_jupyterlab(ip: str, port: int, token: str, work: Path, browser: bool) -> NoReturn:
    """Turn this process into JupyterLab, so that signals (Ctrl-C, a container's stop) reach it directly."""
    environment = {
        **os.environ,
        # In the environment: a command line can be read by everybody on the machine.
        "JUPYTER_TOKEN": token,
        # The course's own settings folder: a configuration in the home folder could switch the token off.
        "JUPYTER_CONFIG_DIR": str(work / OURS / "jupyter"),
    }
    _configure(work)
    options = [
        f"--ServerApp.ip={ip}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={work}",
        f"--ServerApp.open_browser={browser}",
        "--ServerApp.answer_yes=True",  # Ctrl-C ends it without a question
        "--LabApp.default_url=/lab",
        # Nothing is fetched from outside: no news, no question for updates, no list of extensions.
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
        "--KernelManager.transport=ipc",  # sockets of the user's own, which no one else on the machine can reach
        "--Application.log_level=ERROR",  # the address above stays in sight
    ]
    if os.geteuid() == 0:
        options.append("--ServerApp.allow_root=True")
    os.execve(sys.executable, [sys.executable, "-m", "jupyterlab", *options], environment)


def _configure(work: Path) -> None:
    """Settings that JupyterLab and nbgrader only take from files, in the course's own folder."""
    folder = work / OURS / "jupyter"
    (folder / "labconfig").mkdir(parents=True, exist_ok=True)
    # Without the extension that asks whether to fetch news, and, for students, without nbgrader's pages: they are
    # an instructor's, and its Validate button would call any kernel right, since check() shows and doesn't raise.
    disabled = ["@jupyterlab/apputils-extension:announcements"]
    if "TILELAB_COURSE" not in os.environ:
        disabled += [f"@jupyter/nbgrader:{page}" for page in NBGRADER_PAGES]
    page = {"disabledExtensions": dict.fromkeys(disabled, True)}
    _replace(folder / "labconfig" / "page_config.json", json.dumps(page, indent=2).encode())
    # nbgrader warns of a course folder outside the work folder, and of having no settings at all.
    settings = f"c = get_config()\nc.CourseDirectory.root = {str(work)!r}\n"
    if not (folder / "nbgrader_config.py").exists():
        _replace(folder / "nbgrader_config.py", settings.encode())


def _stop(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)
