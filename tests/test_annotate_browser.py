"""The page of ``perturbmap annotate`` in a real browser, as a person uses it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pytest

pytest.importorskip("skimage", reason='needs pip install "perturbmap[images]"')
pytest.importorskip("uvicorn", reason='needs pip install "perturbmap[annotate]"')
pytest.importorskip("playwright", reason="Playwright drives the browser, and is not installed")

from PIL import Image
from playwright.sync_api import sync_playwright

from .annotated import keep_few_words, make_photos, overlap, strokes, truth
from .browser import BROWSER, NEEDS_BROWSER
from .scenes import scene

COMMAND = Path(sys.executable).with_name("perturbmap")
ODD = "z %2e#?é'&"
PATIENCE = 60_000  # milliseconds, on a busy machine

pytestmark = pytest.mark.skipif(BROWSER is None, reason=NEEDS_BROWSER)


class Served:
    """A server in another process, and the address of its page."""

    def __init__(self, photos: Path, *options: object) -> None:
        self.photos, self.masks = photos, photos.with_name(photos.name + "-masks")
        command = [COMMAND, "annotate", photos, "--no-browser", "--port", 0, *options]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        text = ""
        while "Ctrl-C" not in text:
            line = self.process.stdout.readline()
            assert line, "the server has ended"
            text += line
        self.address = re.findall(r"http://\S+", text)[0]

    def mask(self, name: str) -> np.ndarray:
        return np.asarray(Image.open(self.masks / f"{name}.png"))

    def marks(self, name: str) -> list[dict[str, Any]]:
        file = self.masks / f"{name}.marks.json"
        return list(json.loads(file.read_text())) if file.exists() else []

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return int(self.process.returncode)


@contextmanager
def serving(photos: Path, *options: object) -> Iterator[Served]:
    served = Served(photos, *options)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Six scenes, one of an odd name, a broken photo, and one of 20 megapixels."""
    photos = make_photos(tmp_path_factory.mktemp("annotated"), 6)
    keep_few_words(photos)
    Image.fromarray(scene(6)[0]).save(photos / f"{ODD}.png")
    (photos / "broken.jpg").write_bytes(b"no image")
    Image.fromarray(scene(1)[0]).resize((5500, 3660)).save(photos / "large.jpg")
    with serving(photos) as one:
        yield one


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a photo on the page; at the end, nothing has gone wrong there, and no other host was asked."""
    contexts, errors, asked = [], [], []

    def open_it(served: Served, name: str, width: int = 1280, height: int = 800, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: asked.append((request.url, served.address)))
        go(page, served, name)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert errors == []
    assert asked
    assert [url for url, own in asked if not url.startswith((own, "blob:", "about:"))] == []


def go(page: Any, served: Served, name: str) -> None:
    """To a photo, on a page that is loaded anew."""
    page.goto("about:blank")
    page.goto(f"{served.address}#{name}")
    page.locator("#name").filter(has_text=unquote(name)).wait_for()
    shown(page)


def shown(page: Any) -> None:
    """Until the photo is there, with its size below it."""
    page.locator("#about").filter(has_text=re.compile(r"\d+ . \d+")).wait_for()


def on_screen(page: Any, size: tuple[int, int]) -> Callable[[float, float], tuple[float, float]]:
    """From a point of a photo (height, width) that is shown as a whole to one of the window."""
    box = page.locator("#canvas").bounding_box()
    margin = min(24, box["width"] / 40)
    scale = min((box["width"] - 2 * margin) / size[1], (box["height"] - 2 * margin) / size[0])
    left = box["x"] + (box["width"] - scale * size[1]) / 2
    top = box["y"] + (box["height"] - scale * size[0]) / 2
    return lambda x, y: (left + scale * x, top + scale * y)


def draw(
    page: Any, points: list[list[float]], size: tuple[int, int] = (84, 100), times: float = 1.0, **more: bool
) -> None:
    """One stroke of the mouse; the answer may be seen before its end."""
    where = on_screen(page, size)
    page.mouse.move(*where(points[0][0] * times, points[0][1] * times))
    page.mouse.down()
    for x, y in points[1:]:
        page.mouse.move(*where(x * times, y * times), steps=6)
    if more.get("is_seen_before_the_end"):
        answered(page)
    page.mouse.up()


def answered(page: Any) -> None:
    """Until the newest answer is shown."""
    page.locator("#seconds").filter(has_text="ms").wait_for()
    page.locator("#accept:enabled").wait_for()
    page.locator("#busy").wait_for(state="hidden")


def wait(is_so: Callable[[], bool], seconds: float = PATIENCE / 1000) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


def test_strokes_undo_accept_reload(served: Served, open_page: Callable[..., Any]) -> None:
    """Two strokes cut out the scene; undo takes one back, redo brings it again; the mask and all marks are files."""
    page = open_page(served, "s0")
    inside, around = strokes(0)
    assert not page.locator("#accept").is_enabled()
    draw(page, inside["points"], is_seen_before_the_end=True)
    page.keyboard.press("b")
    draw(page, around["points"])
    answered(page)
    wait(lambda: [mark["label"] for mark in served.marks("s0")] == [1, 0])
    page.locator("#undo").click()
    wait(lambda: [mark["label"] for mark in served.marks("s0")] == [1])
    page.keyboard.press("Control+Shift+Z")
    wait(lambda: [mark["label"] for mark in served.marks("s0")] == [1, 0])
    page.reload()
    shown(page)
    answered(page)
    assert page.locator("#undo").is_enabled()
    page.locator("#accept").click()
    wait(lambda: page.locator("#name").text_content() != "s0")
    assert overlap(served.mask("s0"), truth(0)) > 0.8
    assert page.locator("#done-text").text_content() == "1 of 8 done"
    page.goto(f"{served.address}#s0")  # the same page, which has another photo now
    page.locator("#about").filter(has_text="accepted").wait_for()
    page.locator("#withdraw").click()
    wait(lambda: not (served.masks / "s0.png").exists())


def test_a_box_and_the_eraser(served: Served, open_page: Callable[..., Any]) -> None:
    """They are marks as well; the box is written for ``segment fit --boxes``."""
    page = open_page(served, "s5")
    page.keyboard.press("r")
    draw(page, [[20, 10], [80, 70]])
    answered(page)
    wait(lambda: len(served.marks("s5")) == 1)
    left, top, right, bottom = served.marks("s5")[0]["box"]
    np.testing.assert_allclose([left, top, right, bottom], [20, 10, 80, 70], atol=0.6)
    boxes = json.loads((served.masks / "boxes.json").read_text())
    np.testing.assert_allclose(boxes["s5"], [[21, 11, 80, 70]], atol=1)
    page.keyboard.press("e")
    draw(page, [[50, 40], [60, 40]])
    wait(lambda: len(served.marks("s5")) == 2)
    assert served.marks("s5")[1]["label"] == -1
    page.locator("#clear").click()
    wait(lambda: served.marks("s5") == [])
    wait(lambda: "s5" not in json.loads((served.masks / "boxes.json").read_text()))


def test_a_stroke_is_forgotten_by_escape(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    """With its answer, which was there already; nothing is kept of it."""
    photos = make_photos(tmp_path, 1)
    keep_few_words(photos)
    with serving(photos) as served:
        page = open_page(served, "s0")
        where = on_screen(page, (84, 100))
        page.mouse.move(*where(50, 40))
        page.mouse.down()
        page.mouse.move(*where(60, 40), steps=4)
        answered(page)
        page.keyboard.press("Escape")
        page.mouse.up()
        page.locator("#hint").filter(has_text="Draw over").wait_for()
        assert not page.locator("#accept").is_enabled()
        assert served.marks("s0") == []


def test_two_tabs(served: Served, open_page: Callable[..., Any]) -> None:
    """The one that draws on what it has not seen says so, and shows what the other has drawn."""
    first, second = open_page(served, "s1"), open_page(served, "s1")
    draw(first, strokes(1)[0]["points"])
    wait(lambda: len(served.marks("s1")) == 1)
    draw(second, strokes(1)[1]["points"])
    second.locator("#message").filter(has_text="another tab").wait_for()
    second.locator("#undo:enabled").wait_for()
    assert len(served.marks("s1")) == 1
    second.keyboard.press("b")
    draw(second, strokes(1)[1]["points"])
    wait(lambda: len(served.marks("s1")) == 2)


def test_keyboard_alone(served: Served, open_page: Callable[..., Any]) -> None:
    """From the first key to the mask on disk, without a mouse; the list of keys opens and closes."""
    page = open_page(served, "s2")
    page.keyboard.press("?")
    page.locator("#shortcuts[open]").wait_for()
    assert page.locator("#keys tr").count() > 15
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    page.keyboard.press("ArrowRight")  # the cursor appears in the middle
    page.keyboard.press("Space")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    wait(lambda: len(served.marks("s2")) == 1)
    page.keyboard.press("b")
    for _ in range(40):
        page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("Space")
    for _ in range(12):
        page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Space")
    wait(lambda: len(served.marks("s2")) == 2)
    assert [mark["label"] for mark in served.marks("s2")] == [1, 0]
    assert all(y == 0 for _, y in served.marks("s2")[1]["points"])
    answered(page)
    page.keyboard.press("Enter")
    wait((served.masks / "s2.png").exists)
    assert served.mask("s2")[42, 50] == 255
    assert served.mask("s2")[0, 50 - 5] == 0


def test_every_control_has_a_name(served: Served, open_page: Callable[..., Any]) -> None:
    """For those who hear the page: buttons, links, sliders and the photo."""
    page = open_page(served, "s3")
    for control in page.locator("button:visible, a:visible, input:visible, canvas").all():
        name = control.get_attribute("aria-label") or control.inner_text()
        assert name.strip(), control.evaluate("one => one.outerHTML")
    assert page.locator("[role=radio][aria-checked=true]").count() == 1


def test_a_broken_photo_is_listed(served: Served, open_page: Callable[..., Any]) -> None:
    """With the reason, and cannot be opened."""
    page = open_page(served, "s3")
    item = page.locator(".photo[data-kind=broken]")
    assert item.is_disabled()
    assert "no image" in item.get_attribute("title")


def test_an_odd_name(served: Served, open_page: Callable[..., Any]) -> None:
    """Of letters that mean something else in an address; its marks are in a file of that name."""
    page = open_page(served, quote(ODD, safe=""))
    assert page.locator("#name").text_content() == ODD
    draw(page, [[40, 40], [60, 40]])
    wait(lambda: len(served.marks(ODD)) == 1)


@pytest.mark.parametrize("width", [390, 800])
def test_a_narrow_screen(served: Served, open_page: Callable[..., Any], width: int) -> None:
    """Nothing is beyond its edge, and a finger draws."""
    page = open_page(served, "s4", width, 760, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for control in page.locator("header button, header a, .tools button").all():
        if control.is_visible():
            box = control.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
    stage = page.locator("#stage").bounding_box()
    assert stage["height"] > 250
    n_before = len(served.marks("s4"))
    page.touchscreen.tap(stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2)
    wait(lambda: len(served.marks("s4")) == n_before + 1)


def test_two_fingers_zoom_and_draw_nothing(served: Served, open_page: Callable[..., Any]) -> None:
    """Afterwards one finger draws finer: the brush is measured on the screen."""
    page = open_page(served, "s3", 390, 760, has_touch=True)
    stage = page.locator("#stage").bounding_box()
    x, y = stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2
    page.touchscreen.tap(x, y)
    wait(lambda: len(served.marks("s3")) == 1)
    fingers = page.context.new_cdp_session(page)
    for kind, apart in [("touchStart", 20), *(("touchMove", 20 + 10 * n) for n in range(1, 7))]:
        points = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    fingers.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.touchscreen.tap(x, y)
    wait(lambda: len(served.marks("s3")) == 2)
    before, after = served.marks("s3")
    assert 0.2 < after["radius"] / before["radius"] < 0.4  # fingers 40 pixels apart, then 160
    np.testing.assert_allclose(after["points"][0], before["points"][0], atol=1)


def test_twenty_megapixels(served: Served, open_page: Callable[..., Any]) -> None:
    """The page shows the photo smaller; the mask has its full size, and fits."""
    page = open_page(served, "large")
    inside, around = strokes(1)
    size, times = (3660, 5500), 5500 / 100
    inside["points"] = [[x, y * (3660 / 84) / times] for x, y in inside["points"]]
    around["points"] = [[x, y * (3660 / 84) / times] for x, y in around["points"]]
    draw(page, inside["points"], size, times)
    page.keyboard.press("b")
    draw(page, around["points"], size, times)
    wait(lambda: len(served.marks("large")) == 2)
    answered(page)
    page.keyboard.press("Enter")
    wait((served.masks / "large.png").exists)
    assert served.mask("large").shape == size
    small = np.asarray(Image.fromarray(served.mask("large")).resize((100, 84), Image.Resampling.NEAREST))
    assert overlap(small, truth(1)) > 0.8


def test_the_model_is_learned_and_shown(served: Served, open_page: Callable[..., Any]) -> None:
    """After two masks, the list tells the doubt of the others, and the curve begins."""
    page = open_page(served, "s3")
    for name in ("s0", "s1"):
        go(page, served, name)
        number = int(name[1])
        page.keyboard.press("f")
        draw(page, strokes(number)[0]["points"])
        page.keyboard.press("b")
        draw(page, strokes(number)[1]["points"])
        answered(page)
        page.locator("#accept").click()
        wait((served.masks / f"{name}.png").exists)
    page.locator("#learning").filter(has_text="expected error").wait_for(timeout=4 * PATIENCE)
    page.locator(".photo .about").filter(has_text="doubt").first.wait_for(timeout=4 * PATIENCE)
    page.locator(".thought").first.wait_for(state="attached")
    page.locator("#curve").click()
    page.locator("#chart circle").first.wait_for()
    assert "expected to be wrong" in page.locator("#chart-text").text_content()
    page.keyboard.press("Escape")
    with page.expect_download() as saved:
        page.locator("#export").click()
    with zipfile.ZipFile(saved.value.path()) as archive:
        assert {"coco.json", "masks/s0.png", "masks/s1.png"} <= set(archive.namelist())


def test_killed_and_started_again(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    """All is there that was drawn and accepted; the lesson under way has ended with the server."""
    photos = make_photos(tmp_path, 3)
    keep_few_words(photos)
    with serving(photos) as first:
        page = open_page(first, "s0")
        draw(page, strokes(0)[0]["points"])
        answered(page)
        page.keyboard.press("Enter")
        wait((first.masks / "s0.png").exists)
        page.locator("#name").filter(has_text="s1").wait_for()
        shown(page)
        draw(page, strokes(1)[0]["points"])
        wait(lambda: len(first.marks("s1")) == 1)
        first.end(signal.SIGKILL)
        page.locator("#message").filter(has_text="does not answer").wait_for()
    wait(lambda: not lessons(photos))
    with serving(photos) as second:
        page = open_page(second, "s1")
        page.locator("#undo:enabled").wait_for()
        assert page.locator("#done-text").text_content() == "1 of 3 done"
        assert len(second.marks("s1")) == 1
        assert second.end() == 0
    assert not lessons(photos)
    assert not list(second.masks.rglob("*.tmp"))


def lessons(photos: Path) -> list[str]:
    """The processes that learn from a folder, on systems that tell."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"perturbmap.annotate.lesson" in words and os.fsencode(photos) in words:
            found.append(entry.parent.name)
    return found


def test_five_hundred_photos(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    """All are in the list, and pictures are fetched for those in sight alone."""
    photos = make_photos(tmp_path, 1)
    for n in range(1, 500):
        os.link(photos / "s0.png", photos / f"s{n}.png")
    keep_few_words_of_one(photos)
    with serving(photos) as many:
        fetched: list[str] = []
        page = open_page(many, "s0")
        page.on("request", lambda request: fetched.append(request.url))
        assert page.locator("#list li").count() == 500
        assert page.locator("#done-text").text_content() == "0 of 500 done"
        page.reload()
        shown(page)
        draw(page, strokes(0)[0]["points"])
        answered(page)
        page.keyboard.press("Enter")
        page.locator("#done-text").filter(has_text="1 of 500").wait_for()
        assert 0 < sum("thumbnail" in url for url in fetched) < 250


def keep_few_words_of_one(photos: Path) -> None:
    """The words of one photo for a folder of copies."""
    alone = photos.with_name("alone")
    alone.mkdir()
    shutil.copy(photos / "s0.png", alone)
    keep_few_words(alone)
    masks = photos.with_name("photos-masks")
    masks.mkdir()
    shutil.copy(photos.with_name("alone-masks") / "features.pm", masks)


def test_classes_are_tools(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    """One for each name, by the keys 1, 2, 3; the mask has their numbers."""
    photos = make_photos(tmp_path, 2)
    keep_few_words(photos)
    (tmp_path / "classes.json").write_text('{"field": 3, "animal": 5, "sky": 9}')
    with serving(photos, "--classes", tmp_path / "classes.json") as served:
        page = open_page(served, "s0")
        assert page.locator("#kinds [role=radio]").all_inner_texts() == ["Field", "Animal", "Sky", "Erase", "Move"]
        inside, around = strokes(0)
        page.keyboard.press("2")
        draw(page, inside["points"])
        page.keyboard.press("1")
        draw(page, around["points"])
        wait(lambda: [mark["label"] for mark in served.marks("s0")] == [1, 0])
        answered(page)
        page.locator("#accept").click()
        wait((served.masks / "s0.png").exists)
        assert set(np.unique(served.mask("s0")).tolist()) == {3, 5}
        assert overlap(served.mask("s0") == 5, truth(0)) > 0.8
