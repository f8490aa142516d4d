"""The server behind the page: what it may ask for, and what it gets."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from perturbmap.annotate.answer import Answer
from perturbmap.annotate.answering import Answering, revision
from perturbmap.annotate.export import write_zip
from perturbmap.annotate.folder import AnnotationFolder, UnknownPhotoError
from perturbmap.annotate.guard import Guard, TooLargeError
from perturbmap.annotate.learner import Learner
from perturbmap.annotate.lesson import keep_thought, thought_file
from perturbmap.annotate.marks import Box, Mark, marks_from_json, marks_to_json
from perturbmap.annotate.pictures import mask_text, picture, png_text, shown_size, thumbnail
from perturbmap.images import ImageError
from perturbmap.support.damage import parse_json

MODULES = ("app", "server", "marks", "view", "input", "tools", "shortcuts", "list", "chart")
#: The files of the page, and no others, by name.
PAGE = {
    "index.html": "text/html",
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
    **dict.fromkeys([f"{name}.js" for name in MODULES], "text/javascript"),
}
N_AHEAD = 2  # photos after the one that is shown, which are prepared

T = TypeVar("T")


class ConflictError(ValueError):
    """What the page knew is no longer so: another tab has drawn, or there is nothing to accept."""


@final
class Application:
    """All that the page may ask for: photos, marks, answers, masks, the state of learning, an export."""

    def __init__(self, folder: AnnotationFolder, learner: Learner, answering: Answering) -> None:
        self._folder, self._learner, self._answering = folder, learner, answering

    def routes(self) -> list[Route]:
        """The addresses below the token."""
        photo = "/photos/{name}"
        return [
            Route("/", self.index),
            Route("/page/{file}", self.page),
            Route("/state", self.state),
            Route("/export.zip", self.export),
            Route(photo, self.photo),
            Route(f"{photo}/picture", self.picture),
            Route(f"{photo}/thumbnail", self.thumbnail),
            Route(f"{photo}/thought", self.thought),
            Route(f"{photo}/marks", self.marks, methods=["PUT"]),
            Route(f"{photo}/answer", self.answer, methods=["POST"]),
            Route(f"{photo}/mask", self.mask, methods=["GET", "PUT", "DELETE"]),
        ]

    async def index(self, request: Request) -> Response:
        """The page itself, as its file has it."""
        return _page_file("index.html")

    async def page(self, request: Request) -> Response:
        """A script or a style of the page; its name is looked up."""
        name = request.path_params["file"]
        return _page_file(name) if name in PAGE else Response(status_code=404)

    async def state(self, request: Request) -> Response:
        """The photos in the order of their use, what is learned, and how good it is."""
        return JSONResponse(await _in_thread(self._state))

    def _state(self) -> dict[str, Any]:
        folder, progress = self._folder, self._folder.progress()
        photos = []
        for name in self._learner.order():
            is_broken = name in folder.broken
            about: dict[str, Any] = {"name": name, "file": folder.path(name).name}
            if is_broken:
                about = {"name": name, "file": name.encode(errors="replace").decode(), "broken": folder.broken[name]}
            else:
                about["is_accepted"], about["has_marks"] = folder.is_accepted(name), folder.has_marks(name)
                about["doubt"] = progress["doubts"].get(name)
                about["thought"] = _stamp(thought_file(folder, name))
            photos.append(about)
        return {
            "folder": folder.photos.name,
            "labels": [
                {"name": name, "colour": colour} for name, colour in zip(folder.names, folder.colours, strict=True)
            ],
            "has_boxes": folder.classes is None,
            "photos": photos,
            "errors": progress["errors"],
            "learning": self._learner.status,
            "has_model": self._learner.model is not None,
        }

    async def photo(self, request: Request) -> Response:
        """What is known of a photo: its size, its marks, whether it is done; those after it are prepared."""
        name = self._name(request)
        marks = await _in_thread(self._folder.marks, name)
        height, width = self._folder.size(name)
        shown = shown_size((height, width))
        following = [other for other in await _in_thread(self._learner.order) if other != name]
        self._answering.prepare_ahead([name, *following[:N_AHEAD]])
        return JSONResponse(
            {
                "name": name,
                **{"width": width, "height": height, "shown_width": shown[1], "shown_height": shown[0]},
                **{"marks": marks_to_json(marks), "revision": revision(marks)},
                "is_accepted": self._folder.is_accepted(name),
            }
        )

    async def picture(self, request: Request) -> Response:
        """The photo as JPEG, as large as it is shown."""
        return Response(await _in_thread(self._seen, self._name(request), picture), media_type="image/jpeg")

    async def thumbnail(self, request: Request) -> Response:
        """The photo as a small JPEG."""
        name = self._name(request)
        return Response(
            await _in_thread(self._seen, name, lambda _: thumbnail(self._folder, name)), media_type="image/jpeg"
        )

    def _seen(self, name: str, make: Callable[[Any], bytes]) -> bytes:
        try:
            return make(self._folder.path(name))
        except ImageError as error:
            self._folder.broken[name] = str(error)
            raise

    async def thought(self, request: Request) -> Response:
        """A small picture of the model's mask of a photo, or of the accepted one, as PNG."""
        path = thought_file(self._folder, self._name(request))
        if not path.is_file():
            return Response(status_code=404)
        return Response(await _in_thread(path.read_bytes), media_type="image/png")

    async def marks(self, request: Request) -> Response:
        """Keeps what is drawn, if the page knows what was drawn before."""
        name, asked = self._name(request), await _json(request)
        marks = self._parse(asked)
        await _in_thread(self._keep, name, marks, asked.get("revision"))
        return JSONResponse({"revision": revision(marks)})

    def _keep(self, name: str, marks: tuple[Mark, ...], known: Any) -> None:
        if known != revision(self._folder.marks(name)):
            raise ConflictError("this photo was marked in another tab meanwhile: its marks are shown now.")
        self._folder.write_marks(name, marks)

    async def answer(self, request: Request) -> Response:
        """The mask and the doubt for marks, which need not have been kept; nothing where a newer question came."""
        name, marks = self._name(request), self._parse(await _json(request))
        found = await asyncio.wrap_future(self._answering.ask(name, marks))
        return JSONResponse({} if found is None else await _in_thread(self._shown, name, found))

    def _shown(self, name: str, found: Answer) -> dict[str, Any]:
        size = self._folder.size(name)
        return {"mask": mask_text(found.mask, size), "doubt": png_text(found.doubt), "seconds": found.seconds}

    async def mask(self, request: Request) -> Response:
        """The accepted mask: shown, written from what was shown for the marks, or taken back."""
        name = self._name(request)
        if request.method == "GET":
            if not self._folder.is_accepted(name):
                return Response(status_code=404)
            mask = await _in_thread(self._folder.mask, name)
            return JSONResponse({"mask": mask_text(mask, self._folder.size(name))})
        if request.method == "DELETE":
            await _in_thread(self._folder.remove_mask, name)
        else:
            asked = await _json(request)
            await _in_thread(self._accept, name, asked.get("revision"))
        self._learner.ask()
        return JSONResponse({"is_accepted": self._folder.is_accepted(name)})

    def _accept(self, name: str, known: Any) -> None:
        marks = self._folder.marks(name)
        if known != revision(marks):
            raise ConflictError("this photo was marked in another tab meanwhile: look at its marks first.")
        found = self._answering.accepted_answer(name, marks)
        if found is None:
            raise ConflictError("there is nothing to accept yet: draw on the photo first.")
        self._folder.write_mask(name, found.mask)
        keep_thought(self._folder, name, found.mask)

    async def export(self, request: Request) -> Response:
        """A zip of all accepted masks, and their COCO JSON."""
        file = tempfile.SpooledTemporaryFile(max_size=2**24)  # noqa: SIM115 - closed when it has been sent
        await _in_thread(write_zip, self._folder, file)

        async def parts() -> AsyncIterator[bytes]:
            with file:
                file.seek(0)
                while part := await _in_thread(file.read, 2**18):
                    yield part

        headers = {"Content-Disposition": 'attachment; filename="masks.zip"'}
        return StreamingResponse(parts(), media_type="application/zip", headers=headers)

    def _name(self, request: Request) -> str:
        """The photo that a request is about, which is in the list and can be read."""
        name = str(request.path_params["name"])
        self._folder.path(name)
        if name in self._folder.broken:
            raise ImageError(self._folder.broken[name])
        return name

    def _parse(self, asked: dict[str, Any]) -> tuple[Mark, ...]:
        marks = marks_from_json(asked.get("marks"), len(self._folder.names))
        if self._folder.classes is not None and any(isinstance(mark, Box) for mark in marks):
            raise ValueError("marks must be strokes where there are classes, but one is a box.")
        return marks


def make_app(
    folder: AnnotationFolder, *, token: str, host: str, port: int, n_superpixels: int | None = None
) -> ASGIApp:
    """The application for a folder; learning begins, and ends, with it."""
    learner = Learner(folder)
    answering = Answering(folder, lambda: learner.model, n_superpixels)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        learner.ask()
        answering.prepare_ahead(learner.order()[:N_AHEAD])
        yield
        answering.close()
        learner.close()

    handlers: dict[Any, Any] = {
        UnknownPhotoError: _saying(404),
        ConflictError: _saying(409),
        ImageError: _saying(422),
        TooLargeError: _saying(413),
        ValueError: _saying(400),
        OSError: _saying(500),  # a full disk, a photo that is gone: the page says it
    }
    app = Starlette(
        routes=Application(folder, learner, answering).routes(), exception_handlers=handlers, lifespan=lifespan
    )
    return Guard(app, token=token, host=host, port=port)


def make_token() -> str:
    """A token that cannot be guessed, of letters that an address may have."""
    return secrets.token_urlsafe(24)


def _saying(status: int) -> Callable[[Request, Exception], Any]:
    async def say(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, status)

    return say


async def _json(request: Request) -> dict[str, Any]:
    """The body of a request, an object of JSON; ValueError for anything else."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise ValueError("the body must be application/json.")
    found = parse_json(await request.body())
    if not isinstance(found, dict):
        raise ValueError("the body must be an object of JSON.")
    return found


async def _in_thread(function: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.to_thread(function, *arguments)


def _stamp(path: Path) -> int | None:
    """What changes when a file is written anew; None where it is not there."""
    try:
        return path.stat().st_mtime_ns // 10**6
    except OSError:
        return None


def _page_file(name: str) -> Response:
    content = files("perturbmap.annotate").joinpath("page", name).read_bytes()
    return Response(content, media_type=PAGE[name])
