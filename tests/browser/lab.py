"""A real JupyterLab, started as the README says, and a headless Chromium that runs a notebook in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
DEEPER = {"exercises", "solutions", "work"}
START_S, RUN_S = 120, 240  # a busy machine took 60 s to show the first notebook
TOKEN = "lesson"

# Lines a learner must not see under a cell: what TensorFlow, absl, oneDNN and CUDA write to the terminal.
LEAKED = re.compile(
    r"absl::InitializeLog|oneDNN custom operations|cudart_stub|cpu_feature_guard|^[IWEF]\d{4} \d\d:", re.MULTILINE
)
# JupyterLab reaches for the network or asks questions unless it is told not to.
SERVER_SETTINGS = (
    "--no-browser",
    "--ServerApp.port=0",  # any free port
    f"--IdentityProvider.token={TOKEN}",
    "--ServerApp.open_browser=False",
    "--LabApp.news_url=None",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.extension_manager=readonly",
    "--LabApp.expose_app_in_browser=True",  # window.jupyterapp: how the test runs all cells
    "--ServerApp.terminals_enabled=False",
)


# No question about news over the page; all cells drawn at once, so that every picture can be looked at.
USER_SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}


@dataclass
class Outcome:
    """What one notebook did in the browser."""

    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)
    screenshots: list[Path] = field(default_factory=list)


@contextlib.contextmanager
def running_lab(folder: Path) -> Iterator[str]:
    """Start JupyterLab over ``folder``; gives its address. Nothing of the user's own settings is used.

    Raises TimeoutError with the server's log when it does not answer within ``START_S`` seconds.
    """
    with tempfile.TemporaryDirectory() as settings:
        log = Path(settings, "server.log")
        _write_settings(Path(settings, "lab"))
        environment = os.environ | {
            name: str(Path(settings, name.lower())) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")
        }
        environment |= {"JUPYTER_RUNTIME_DIR": str(Path(settings, "runtime"))}
        environment |= {"JUPYTERLAB_SETTINGS_DIR": str(Path(settings, "lab")), "BROWSER": "true"}
        for name in ("PYTEST_CURRENT_TEST", "MPLBACKEND", "TF_CPP_MIN_LOG_LEVEL"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "jupyter", "lab", *SERVER_SETTINGS, f"--ServerApp.root_dir={folder}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--allow-root")
        with log.open("wb") as output:
            server = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
        try:
            yield _wait_for(server, log)
        finally:
            _stop(server)


@contextlib.contextmanager
def copied(notebook: Path) -> Iterator[tuple[Path, str]]:
    """(folder, path in it): a copy of the notebook, whose data/ is the real one. JupyterLab saves what it runs.

    Exercises lie one folder deeper, and find the data at ``../data``.
    """
    deeper = notebook.parent.name if notebook.parent.name in DEEPER else ""
    course = notebook.parent.parent if deeper else notebook.parent
    (course / "data").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, deeper).mkdir(exist_ok=True)
        shutil.copy(notebook, Path(folder, deeper))
        Path(folder, "data").symlink_to(course / "data")
        yield Path(folder), f"{deeper}/{notebook.name}".lstrip("/")


@contextlib.contextmanager
def browser_page(width: int = 1280, height: int = 900) -> Iterator[Page]:
    """A page of a headless Chromium without any profile."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser.new_page(viewport={"width": width, "height": height})
        finally:
            browser.close()


def run_notebook(page: Page, address: str, name: str, *, screenshots: Path | None = None) -> Outcome:
    """Open a notebook, run all its cells from a fresh kernel, and look for what a learner should not see."""
    console: list[str] = []
    page.on("console", lambda message: _note(console, message))
    page.on("request", lambda request: _note_request(console, request.url, address))
    outcome = Outcome()
    page.goto(f"{address}/lab/tree/{name}?token={TOKEN}&reset", wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=1000 * START_S)
    page.wait_for_function(KERNEL_IDLE, timeout=1000 * START_S)
    started = time.monotonic()
    page.evaluate(RUN_ALL)
    page.wait_for_function(ALL_DONE, timeout=1000 * RUN_S)
    outcome.seconds = time.monotonic() - started
    outcome.faults = _faults(page) + console
    if screenshots is not None:
        outcome.screenshots = take_screenshots(page, screenshots)
    return outcome


def answer_exercise(page: Page, number: str, code: str) -> str:
    """Type ``code`` over the answer of an exercise, run it and its check by Shift+Enter; returns what is shown below.

    Only the keyboard is used from the answer's cell on, as by a learner without a mouse.
    """
    place = page.evaluate(CHECK_PLACE, f'check("{number}", answer)')
    page.evaluate(f"n => {{ {PANEL}.content.activeCellIndex = n; {PANEL}.content.mode = 'command'; }}", place - 1)
    page.evaluate(f"() => {{ {PANEL}.content.node.focus(); }}")
    page.keyboard.press("Enter")  # into the cell
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(code)
    for _ in range(2):  # the answer, then its check
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(300)
        page.wait_for_function(KERNEL_IDLE, timeout=1000 * RUN_S)
    return page.locator(".jp-NotebookPanel .jp-Cell").nth(place).locator(".jp-OutputArea").inner_text()


def take_screenshots(page: Page, folder: Path) -> list[Path]:
    """Photograph the notebook from top to bottom, one picture a screen."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    page.evaluate(f"{SCROLLER}.scrollTop = 0")
    while True:
        page.wait_for_timeout(400)  # JupyterLab draws cells when they come into view
        paths.append(folder / f"{len(paths):02d}.png")
        page.screenshot(path=paths[-1])
        if page.evaluate(AT_END):  # below the last cell JupyterLab leaves an empty screen
            break
        page.evaluate(f"{SCROLLER}.scrollTop += {SCROLLER}.clientHeight - 40")
    return paths


SCROLLER = "document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer')"
AT_END = f"""() => {{
    const outer = {SCROLLER}, cells = outer.querySelectorAll('.jp-Cell');
    return cells[cells.length - 1].getBoundingClientRect().bottom <= outer.getBoundingClientRect().bottom + 1;
}}"""
PANEL = "window.jupyterapp.shell.currentWidget"
KERNEL_IDLE = f"() => {{ const k = {PANEL}?.sessionContext?.session?.kernel; return k && k.status === 'idle'; }}"
RUN_ALL = f"""async () => {{
    window.lessonDone = false;
    const app = window.jupyterapp, panel = {PANEL};
    app.shell.collapseLeft();
    await panel.context.ready;
    app.commands.execute('notebook:run-all-cells').finally(() => {{ window.lessonDone = true; }});
}}"""
ALL_DONE = f"() => window.lessonDone && {PANEL}.sessionContext.session.kernel.status === 'idle'"
CHECK_PLACE = f"""text => {PANEL}.content.model.sharedModel.cells.findIndex(c => c.source.includes(text))"""
CODE_CELLS = f"""() => {PANEL}.content.model.sharedModel.cells.filter(c => c.cell_type === 'code')
    .map(c => ({{count: c.execution_count, outputs: c.toJSON().outputs}}))"""
POOR_IMAGES = f"""() => [...{PANEL}.node.querySelectorAll('.jp-OutputArea img, .jp-MarkdownOutput img')]
    .filter(i => !i.alt || !i.complete || i.naturalWidth === 0).map(i => i.outerHTML.slice(0, 120))"""


def _faults(page: Page) -> list[str]:
    cells = page.evaluate(CODE_CELLS)
    found = [fault for number, cell in enumerate(cells, 1) for fault in _cell_faults(number, cell)]
    counts = [cell["count"] for cell in cells]
    if counts != list(range(1, len(cells) + 1)):
        found.append(f"cells were not run 1 to {len(cells)}: {counts}")
    return found + [f"picture without alt text or not drawn: {image}" for image in page.evaluate(POOR_IMAGES)]


def _cell_faults(number: int, cell: dict) -> Iterator[str]:
    for output in cell["outputs"]:
        text = output.get("text", "")
        text = text if isinstance(text, str) else "".join(text)
        if output["output_type"] == "error":
            yield f"code cell {number} raised {output['ename']}: {output['evalue']}"
        if output.get("name") == "stderr":
            yield f"code cell {number} wrote to stderr: {text[:300]}"
        elif LEAKED.search(text):
            yield f"code cell {number} shows a line of a log: {text[:300]}"


def _note(console: list[str], message: ConsoleMessage) -> None:
    """Keep errors of the page that concern the notebook; JupyterLab itself logs a few that do not."""
    if message.type == "error" and re.search(r"sanitiz|render|mime", message.text, re.IGNORECASE):
        console.append(f"browser console: {message.text[:300]}")


def _note_request(console: list[str], url: str, address: str) -> None:
    """Anything asked of another machine is a fault: the course works offline."""
    if url.startswith("http") and not url.startswith(address):
        console.append(f"the page asked the network for {url[:200]}")


def _write_settings(folder: Path) -> None:
    for name, values in USER_SETTINGS.items():
        path = folder / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")


def _wait_for(server: subprocess.Popen, log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace"))
        if found and _answers(f"{found[0]}/api/status?token={TOKEN}"):
            return found[0]
        time.sleep(0.2)
    raise TimeoutError(f"JupyterLab did not start within {START_S} s. Its log:\n{log.read_text(errors='replace')}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _stop(server: subprocess.Popen) -> None:
    """End the server and its kernels: they are one process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(15)
