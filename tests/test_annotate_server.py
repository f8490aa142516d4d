"""What the server of the page answers, and to whom it does not."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')
pytest.importorskip("starlette", reason='needs pip install "perturbmap[annotate]"')
pytest.importorskip("httpx2", reason="Starlette's client for tests needs it")

from PIL import Image
from starlette.testclient import TestClient

from perturbmap.annotate import answering as answering_module
from perturbmap.annotate.answer import Answer
from perturbmap.annotate.answering import Answering
from perturbmap.annotate.folder import AnnotationFolder
from perturbmap.annotate.guard import LARGEST_BODY, Guard
from perturbmap.annotate.learner import Learner
from perturbmap.annotate.pictures import LARGEST_SIDE
from perturbmap.annotate.server import PAGE, make_app, make_token
from perturbmap.images import Classes

from .annotated import make_photos, overlap, strokes, truth

TOKEN, PORT = "the-token", 8765
HERE = f"http://127.0.0.1:{PORT}/{TOKEN}/"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often a lesson was asked for; none is given."""
    times: list[str] = []
    monkeypatch.setattr(Learner, "ask", lambda self: times.append("asked"))
    return times


@pytest.fixture
def folder(tmp_path: Path) -> AnnotationFolder:
    photos = make_photos(tmp_path)
    (photos / "bad.jpg").write_bytes(b"no image")
    return AnnotationFolder(photos)


@pytest.fixture
def client(folder: AnnotationFolder, asked: list[str]) -> Iterator[TestClient]:
    with TestClient(make_app(folder, token=TOKEN, host="127.0.0.1", port=PORT), base_url=HERE) as opened:
        yield opened


def draw(client: TestClient, name: str, marks: list[Any]) -> str:
    """Keeps marks and returns their revision."""
    before = client.get(f"photos/{name}").json()["revision"]
    done = client.put(f"photos/{name}/marks", json={"marks": marks, "revision": before})
    assert done.status_code == 200, done.text
    return str(done.json()["revision"])


def picture(text: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def test_from_strokes_to_a_mask_on_disk(client: TestClient, folder: AnnotationFolder, asked: list[str]) -> None:
    """The answer fits the truth, is what is accepted, and a lesson follows."""
    answer = client.post("photos/s0/answer", json={"marks": strokes(0)}).json()
    assert overlap(picture(answer["mask"]), truth(0)) > 0.8
    assert picture(answer["doubt"]).max() > 0
    assert not folder.has_marks("s0")  # it was a question
    revision = draw(client, "s0", strokes(0))
    n_asked = len(asked)
    assert client.put("photos/s0/mask", json={"revision": revision}).json() == {"is_accepted": True}
    assert len(asked) == n_asked + 1
    np.testing.assert_array_equal(folder.mask("s0"), picture(answer["mask"]))
    shown = client.get("photos/s0/mask").json()["mask"]
    np.testing.assert_array_equal(picture(shown), folder.mask("s0"))
    state = client.get("state").json()
    assert {one["name"]: one.get("is_accepted") for one in state["photos"]} == {
        **{"s0": True, "s1": False, "s2": False, "s3": False},
        "bad": None,
    }
    assert client.delete("photos/s0/mask").json() == {"is_accepted": False}
    assert client.get("photos/s0/mask").status_code == 404


def test_pictures_are_as_large_as_a_screen_can_use(tmp_path: Path, asked: list[str]) -> None:
    """The photo, its thumbnail, and a mask of it; the mask on disk has the photo's size."""
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.new("RGB", (4000, 1000), (90, 120, 75)).save(photos / "wide.png")
    folder = AnnotationFolder(photos)
    folder.write_mask("wide", np.ones((1000, 4000), dtype=np.uint8))
    client = TestClient(make_app(folder, token=TOKEN, host="127.0.0.1", port=PORT), base_url=HERE)
    sizes = [
        Image.open(io.BytesIO(client.get(f"photos/wide/{kind}").content)).size for kind in ("picture", "thumbnail")
    ]
    assert sizes == [(LARGEST_SIDE, 640), (192, 48)]
    assert picture(client.get("photos/wide/mask").json()["mask"]).shape == (640, LARGEST_SIDE)
    about = client.get("photos/wide").json()
    assert (about["width"], about["height"], about["shown_width"]) == (4000, 1000, LARGEST_SIDE)


def test_two_tabs_do_not_write_over_each_other(client: TestClient, folder: AnnotationFolder) -> None:
    """The second one that draws on what it has not seen is refused, and so is its mask."""
    known = client.get("photos/s0").json()["revision"]
    draw(client, "s0", strokes(0))
    refused = client.put("photos/s0/marks", json={"marks": [], "revision": known})
    assert refused.status_code == 409
    assert "another tab" in refused.json()["error"]
    assert client.put("photos/s0/mask", json={"revision": known}).status_code == 409
    assert len(folder.marks("s0")) == 2
    assert not folder.is_accepted("s0")


def test_without_marks_and_model_there_is_nothing_to_accept(client: TestClient, folder: AnnotationFolder) -> None:
    """Which is said, in place of a mask of nothing."""
    assert client.post("photos/s1/answer", json={"marks": []}).json() == {}
    revision = client.get("photos/s1").json()["revision"]
    refused = client.put("photos/s1/mask", json={"revision": revision})
    assert refused.status_code == 409
    assert "draw on the photo first" in refused.json()["error"]
    assert not folder.accepted()


def test_the_export_is_a_zip(client: TestClient, folder: AnnotationFolder) -> None:
    """Of the masks and COCO JSON, to be saved."""
    folder.write_mask("s1", truth(1))
    found = client.get("export.zip")
    assert "attachment" in found.headers["content-disposition"]
    with zipfile.ZipFile(io.BytesIO(found.content)) as archive:
        assert sorted(archive.namelist()) == ["coco.json", "masks/s1.png"]


def test_classes_have_names_and_colours_and_no_boxes(tmp_path: Path, asked: list[str]) -> None:
    """A box is one of a foreground, and there is none."""
    folder = AnnotationFolder(make_photos(tmp_path, 1), classes=Classes({"a": 1, "b": 2, "c": 3}))
    client = TestClient(make_app(folder, token=TOKEN, host="127.0.0.1", port=PORT), base_url=HERE)
    state = client.get("state").json()
    assert [one["name"] for one in state["labels"]] == ["a", "b", "c"]
    assert not state["has_boxes"]
    refused = client.post("photos/s0/answer", json={"marks": [{"box": [0, 0, 9, 9]}]})
    assert refused.status_code == 400
    assert "strokes where there are classes" in refused.json()["error"]


def test_a_newer_question_cancels_the_older(folder: AnnotationFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older one stops at its next look, and answers nothing."""
    began, seen = threading.Event(), []

    def slow(photo: Any, marks: Any, predictor: Any, *, is_cancelled: Any) -> Answer | None:
        began.set()
        end = time.monotonic() + 30
        while len(marks) == 1 and time.monotonic() < end:
            if is_cancelled():
                seen.append("cancelled")
                return None
            time.sleep(0.01)
        return Answer(truth(0), truth(0), 0.0)

    monkeypatch.setattr(answering_module, "answer", slow)
    answering = Answering(folder, lambda: None, 100)
    older = answering.ask("s0", (object(),))  # type: ignore[arg-type]
    assert began.wait(30)
    monkeypatch.setattr(answering_module, "revision", lambda marks: str(len(marks)))
    newer = answering.ask("s0", (object(), object()))  # type: ignore[arg-type]
    assert older.result(30) is None
    assert newer.result(30) is not None
    assert seen == ["cancelled"]
    answering.close()


# Who may ask.


def test_the_token_is_asked_for(folder: AnnotationFolder, asked: list[str]) -> None:
    """In the address of every request: without it, or with another, there is nothing."""
    app = make_app(folder, token=TOKEN, host="127.0.0.1", port=PORT)
    client = TestClient(app, base_url=f"http://127.0.0.1:{PORT}", follow_redirects=False)
    for path in ("/", "/state", "/photos/s0", "/wrong/state", f"/{TOKEN}x/state", f"//{TOKEN}/state", f"/?{TOKEN}"):
        refused = client.get(path)
        assert refused.status_code == 403, path
        assert "s0" not in refused.text
    assert client.get(f"/{TOKEN}/state").status_code == 200
    assert len({make_token() for _ in range(100)}) == 100
    assert len(make_token()) >= 32


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1:80", "127.0.0.1", "192.0.2.7:8765", ""]
)
def test_a_foreign_host_is_refused(client: TestClient, host: str) -> None:
    """A name of someone else that leads here, and another port."""
    assert client.get("state", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765"])
def test_own_names_are_welcome(client: TestClient, host: str) -> None:
    """Whatever the browser was told."""
    assert client.get("state", headers={"Host": host}).status_code == 200


def test_a_server_for_the_network_takes_addresses_alone(folder: AnnotationFolder, asked: list[str]) -> None:
    """Those that no one else can lead here: numbers, and not names."""
    client = TestClient(make_app(folder, token=TOKEN, host="0.0.0.0", port=PORT), base_url=HERE)
    assert client.get("state", headers={"Host": "192.0.2.7:8765"}).status_code == 200
    assert client.get("state", headers={"Host": "evil.example:8765"}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8765", "http://127.0.0.1:9999"])
def test_a_foreign_origin_is_refused(client: TestClient, folder: AnnotationFolder, origin: str) -> None:
    """With the right token, too; and no header allows another page to read anything."""
    body = {"marks": strokes(0), "revision": client.get("photos/s0").json()["revision"]}
    refused = client.put("photos/s0/marks", json=body, headers={"Origin": origin})
    assert refused.status_code == 403
    assert not folder.has_marks("s0")
    asking = client.options("photos/s0/marks", headers={"Origin": origin, "Access-Control-Request-Method": "PUT"})
    for answer in (refused, asking, client.get("state")):
        assert not [key for key in answer.headers if key.lower().startswith("access-control")]
    own = client.put("photos/s0/marks", json=body, headers={"Origin": f"http://127.0.0.1:{PORT}"})
    assert own.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "photos/..%2fphotos%2fs0",
        "photos/%2e%2e%2f%2e%2e%2fetc%2fpasswd/picture",
        "photos/..%5c..%5cs0",
        "photos/s0.png/picture",
        "photos/%2fetc%2fpasswd",
        "photos/s0%00",
        "page/..%2fserver.py",
        "page/%2e%2e/server.py",
        "page/server.py",
        "page/",
    ],
)
def test_paths_lead_nowhere_else(client: TestClient, path: str) -> None:
    """Names are looked up in a list, those of photos and those of the page's files."""
    for method in ("GET", "DELETE"):
        answer = client.request(method, path)
        assert answer.status_code in (404, 405), path
        assert "root:" not in answer.text
        assert "import" not in answer.text


def test_a_broken_photo_is_told_and_not_shown(client: TestClient, folder: AnnotationFolder) -> None:
    """Also one that breaks while the server runs."""
    answer = client.get("photos/bad/picture")
    assert answer.status_code == 422
    assert "no image" in answer.json()["error"]
    folder.path("s3").write_bytes(folder.path("s3").read_bytes()[:300])
    assert client.get("photos/s3/picture").status_code == 422
    state = client.get("state").json()
    assert {one["name"] for one in state["photos"] if "broken" in one} == {"bad", "s3"}


BAD_BODIES: list[tuple[bytes, str]] = [
    (b"{", "JSON"),
    (b"", "JSON"),
    (b"[]", "object"),
    (b"\xff\xfe", "JSON"),
    (b"[" * 100_000, "JSON"),
    (b"{}", "marks must be a list"),
    (b'{"marks": {}}', "marks must be a list"),
    (b'{"marks": [1]}', "marks"),
    (b'{"marks": [{"label": 9, "radius": 1, "points": [[1, 1]]}]}', "label"),
    (b'{"marks": [{"label": 1, "radius": 1e999, "points": [[1, 1]]}]}', "radius"),
    (b'{"marks": [{"label": 1, "radius": 1, "points": [[NaN, 1]]}]}', "points"),
    (json.dumps({"marks": [{"box": [0, 0, 1, 1]}] * 6000}).encode(), "at most 5000"),
]


@pytest.mark.parametrize(("body", "said"), BAD_BODIES, ids=lambda value: repr(value)[:24])
def test_malformed_bodies_are_refused(client: TestClient, body: bytes, said: str) -> None:
    """With what is wrong; nothing is written."""
    for method, path in (("PUT", "marks"), ("POST", "answer")):
        answer = client.request(
            method, f"photos/s0/{path}", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 400
        assert said in answer.json()["error"]


def test_a_form_of_another_page_is_no_json(client: TestClient) -> None:
    """What a page may send elsewhere without asking has another type, and is refused for it."""
    body = json.dumps({"marks": []}).encode()
    answer = client.post("photos/s0/answer", content=body, headers={"Content-Type": "text/plain"})
    assert answer.status_code == 400
    assert "application/json" in answer.json()["error"]


def test_huge_bodies_are_refused(client: TestClient) -> None:
    """By what they say of their size, and by what comes where they say nothing."""
    headers = {"Content-Type": "application/json"}
    huge = b" " * (LARGEST_BODY + 1)
    assert client.put("photos/s0/marks", content=huge, headers=headers).status_code == 413

    def parts() -> Iterator[bytes]:
        for _ in range(8):
            yield b" " * 2**20

    assert client.put("photos/s0/marks", content=parts(), headers=headers).status_code == 413
    for length in ("-1", "ten", "9" * 40):
        answer = client.request("PUT", "photos/s0/marks", headers={**headers, "Content-Length": length})
        assert answer.status_code == 413


def test_every_answer_allows_the_page_nothing_but_itself(client: TestClient) -> None:
    """Refusals, too."""
    for path in ("", "state", "photos/none", "photos/s0/picture", "../wrong/", *(f"page/{name}" for name in PAGE)):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


def test_the_page_is_whole(client: TestClient) -> None:
    """Each of its files is there under its type, and there are no others."""
    for name, kind in PAGE.items():
        answer = client.get(f"page/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
    there = {path.name for path in (Path(make_app.__code__.co_filename).parent / "page").iterdir()}
    assert there == set(PAGE)


def test_other_protocols_are_left_alone() -> None:
    """A socket of the web is not opened."""
    touched = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        touched.append(scope["type"])

    guard = Guard(app, token=TOKEN, host="127.0.0.1", port=PORT)
    with pytest.raises(StopIteration):
        guard({"type": "websocket"}, None, None).send(None)  # type: ignore[arg-type]
    assert touched == []


def test_any_name_of_a_file_can_be_asked_for(tmp_path: Path, asked: list[str]) -> None:
    """With letters that mean something else in an address."""
    photos = make_photos(tmp_path, 1)
    name = "a b#c%é+&=;'s"  # no %20: Starlette's client decodes twice
    (photos / "s0.png").rename(photos / f"{name}.png")
    folder = AnnotationFolder(photos)
    client = TestClient(make_app(folder, token=TOKEN, host="127.0.0.1", port=PORT), base_url=HERE)
    assert client.get("state").json()["photos"][0]["name"] == name
    address = f"photos/{quote(name, safe='')}"
    assert client.get(address).json()["name"] == name
    assert client.get(f"{address}/thumbnail").status_code == 200


def test_a_photo_that_is_gone_is_told(client: TestClient, folder: AnnotationFolder) -> None:
    """In words, and the server goes on."""
    folder.path("s2").unlink()
    answer = client.get("photos/s2/picture")
    assert answer.status_code == 500
    assert "s2.png" in answer.json()["error"]
    assert client.get("photos/s1/picture").status_code == 200


def test_what_is_planned_ahead_follows_the_page(folder: AnnotationFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Photos that were to be prepared and no longer are next are not."""
    prepared, go_on, began = [], threading.Event(), threading.Event()

    def slow(path: Path, **options: Any) -> Any:
        began.set()
        assert go_on.wait(30)
        prepared.append(path.stem)

    monkeypatch.setattr(answering_module, "prepare", slow)
    answering = Answering(folder, lambda: None, 100)
    answering.prepare_ahead(["s0", "s1", "s2"])
    assert began.wait(30)
    answering.prepare_ahead(["s3", "bad", "s0"])
    go_on.set()
    end = time.monotonic() + 30
    while len(prepared) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    answering.close()
    assert prepared == ["s0", "s3"]
