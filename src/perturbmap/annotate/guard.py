"""Who may ask: requests with the token of the address, of this host and this page alone, and of a bounded size."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import Any, final

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 4 * 2**20  # bytes; a stroke of a thousand points has twenty thousand
LOCAL = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::", "")

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class TooLargeError(ValueError):
    """A body of more bytes than are read."""


@final
class Guard:
    """Refuses what does not come from the page that was opened; all others go on to the app, below the token.

    The address is http://HOST:PORT/TOKEN/..., so that whatever the page asks for carries the token. A foreign Host is
    a page of another name that was led here (DNS rebinding), a foreign Origin a page of another place. There are no
    CORS headers: no other page may read an answer.
    """

    def __init__(self, app: ASGIApp, *, token: str, host: str, port: int) -> None:
        self._app, self._token, self._host, self._port = app, token, host, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; see the interface of ASGI."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        refusal = self._refusal(Request(scope))
        if refusal is not None:
            status, text = refusal
            await PlainTextResponse(text, status)(scope, receive, _with_headers(send))
            return
        prefix = f"/{self._token}"
        scope = {**scope, "root_path": scope.get("root_path", "") + prefix}
        n_bytes = 0

        async def counted() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > LARGEST_BODY:
                raise TooLargeError(f"a request has at most {LARGEST_BODY} bytes.")
            return message

        await self._app(scope, counted, _with_headers(send))

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        """Status and reason, or None for a request that may pass."""
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return 403, "This host is not the one that was opened."
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            return 403, "Another page may not ask."
        first = request.scope["path"].split("/")[1] if "/" in request.scope["path"] else ""
        if not hmac.compare_digest(first.encode(), self._token.encode()):
            return 403, "The token is wrong: open the address that perturbmap annotate has printed."
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return 413, f"A request has at most {LARGEST_BODY} bytes."
        return None

    def _is_own(self, host: str) -> bool:
        """Whether a Host header names this server: a name that no one else can lead here, and its port."""
        name, _, port = host.rpartition(":")
        if port != str(self._port):
            return False
        name = name.removeprefix("[").removesuffix("]").lower()
        if name in LOCAL or name == self._host.lower():
            return True
        return self._host in EVERYWHERE and (_is_address(name) or name == socket.gethostname().lower())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    """Sends what allows the page nothing but itself."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            ours = {key.lower().encode(): value.encode() for key, value in _HEADERS.items()}
            theirs = [(key, value) for key, value in message["headers"] if key.lower() not in ours]
            message = {**message, "headers": [*theirs, *ours.items()]}
        await send(message)

    return sending
