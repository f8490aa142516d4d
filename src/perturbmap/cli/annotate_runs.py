"""What ``perturbmap annotate`` does: a folder, a socket, a server, and a browser."""

from __future__ import annotations

import contextlib
import socket
import threading
import webbrowser
from pathlib import Path
from typing import final

import click

from perturbmap.annotate.folder import AnnotationFolder
from perturbmap.images import Classes

try:
    import uvicorn

    from perturbmap.annotate.guard import EVERYWHERE
    from perturbmap.annotate.server import make_app, make_token
except ImportError as missing:
    raise ImportError(
        f'perturbmap annotate needs Starlette and Uvicorn ({missing}): pip install "perturbmap[annotate]".'
    ) from missing

PATIENCE = 2  # seconds that a request under way may take at the end


@final
class _Server(uvicorn.Server):
    """Says where the page is, as soon as it is there."""

    def __init__(self, config: uvicorn.Config, address: str, opens: bool) -> None:
        super().__init__(config)
        self._address, self._opens = address, opens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As Uvicorn has it, then the address."""
        await super().startup(sockets)
        if self.started:
            click.echo(f"The page: {self._address}\nCtrl-C ends it; everything is on disk already.")
            if self._opens:
                threading.Thread(target=webbrowser.open, args=(self._address,), daemon=True).start()


def annotate(
    *,
    photos: Path,
    masks: Path | None,
    classes: Path | None,
    superpixels: int | None,
    port: int,
    host: str,
    browser: bool,
) -> None:
    """Serves the page until Ctrl-C."""
    folder = AnnotationFolder(photos, masks, None if classes is None else Classes.read(classes))
    folder.hold()
    n_done, n_broken = len(folder.accepted()), len(folder.broken)
    click.echo(f"{len(folder.files)} photos in {folder.photos}, {n_done} with a mask in {folder.masks}.")
    for reason in list(folder.broken.values())[:3]:
        click.echo(f"Warning: left out: {reason}", err=True)
    if n_broken > 3:
        click.echo(f"Warning: and {n_broken - 3} more.", err=True)
    with _listening(host, port) as sock:
        port, token = sock.getsockname()[1], make_token()
        app = make_app(folder, token=token, host=host, port=port, n_superpixels=superpixels)
        shown = "127.0.0.1" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=PATIENCE)
        server = _Server(config, f"http://{shown}:{port}/{token}/", browser)
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[sock])
    click.echo(f"Ended. Masks: {folder.masks}")


def _listening(host: str, port: int) -> socket.socket:
    """A socket that is bound, before anything is begun."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise click.UsageError(
            f"--host {host} --port {port} cannot be listened at ({error.strerror or error}): choose another, "
            "or --port 0 for any that is free."
        ) from None
    return sock
