"""Ways to spoil a file: damage, as disks and transfers do it, and forgery, of which all checksums are right.

`mutate_archive`, `mutate_text` and `mutate_json` take the bytes of a file, `mutate_store` and `mutate_cache` change a
folder in place; each makes one choice of many with the generator that it is given. The parts, such as
`archive_members` and `npy`, are for whoever forges something in particular.
"""

from __future__ import annotations

import ast
import copy
import io
import json
import math
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Generator = np.random.Generator
T = TypeVar("T")

#: Stands for lists in lists in lists, deeper than any parser goes; `json_bytes` writes them.
DEEP = "lists in lists"
_DEPTH = 100_000

#: What may stand anywhere in a JSON text.
ODD_VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 3, 17, 2**31, 2**62, 2**63, 2**64, 10**12, 10**18, 10**300),
    *(0.5, -0.5, 1e-320, 1e308, math.nan, math.inf, -math.inf),
    *("", "x", "w", "../../x", "\x00", "é" * 300, "coef", "<U3", "|O", DEEP),
    *([], {}, [[]], [None], [1, 1], ["a", "a"], [10**12], [-1, 2], [[0, 1], [2]], {"": {}}, {"a": 1}),
    *({"class": "DoubleSGD"}, {"class": "DoubleSGD", "params": []}, {"class": "Hamming", "params": {"x": 1}}),
    *({"class": "Decoding", "value": "no such"}, {"class": "Decoding", "params": {}}, {"class": "Chain", "value": 3}),
    *(
        {"class": [1], "params": {}},
        {"class": "os.system", "params": {}},
        {"class": "Own", "own": True, "params": {}},
    ),
    *({"class": "Structure", "params": {}}, {"class": "FromSolver", "params": {"solve": 3}}),
    *(
        {"array": [1], "dtype": "|O"},
        {"array": ["a"], "dtype": "<U400000000"},
        {"array": [[1], [2, 3]], "dtype": "<f8"},
    ),
    *({"array": {}, "dtype": "<f8"}, {"array": [1]}, {"array": [1], "dtype": [["a", "<f8"]]}, {"tuple": 3}),
    *({"range": [0, 10**18, 1]}, {"range": [1]}, {"range": [0, 1, 0]}, {"dict": [[[], 1]]}, {"dict": 3}),
]

#: Type, order and shape that a header of an array may claim.
ODD_TYPES = [
    "<f8",
    "<f4",
    "<f2",
    ">f8",
    "<i8",
    "<i4",
    "|u1",
    "|b1",
    "<c16",
    "<U3",
    "<U90000000",
    "|V8",
    "|O",
    "<M8[s]",
]
ODD_SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3,), (7, 2), (10**12,), (10**12, 0), (10**30,), (2**32, 2**32)]
ODD_SHAPES += [(1,) * 100]

#: What may stand in a text of numbers.
ODD_WORDS = ["-1", "0", "1", "2", "3", "65535", "1000000000000", "9" * 30, "9" * 6000, "nan", "1e400", "1e-330", "x"]
ODD_WORDS += ["", "_", "1_0", "é", "\x00", "MARKOV", "BAYES", "0x10", "+1", "1.5", "٣"]


def choose(rng: Generator, things: Sequence[T]) -> T:
    """Any of them, as likely as any other."""
    return things[int(rng.integers(len(things)))]


# Damage: of any file.


def damage(rng: Generator, data: bytes) -> bytes:
    """Bytes flipped, cut off, left out, repeated, put in or blanked."""
    at, length = int(rng.integers(len(data) + 1)), int(rng.choice([1, 4, 16, 200]))
    ways: list[Callable[[], bytes]] = [
        lambda: _flipped(rng, data),
        lambda: data[:at],
        lambda: data[at:],
        lambda: data[:at] + data[at + length :],
        lambda: data[:at] + data[at : at + length] * 2 + data[at + length :],
        lambda: data[:at] + rng.bytes(length) + data[at:],
        lambda: data[:at] + bytes([int(rng.choice([0, 255]))]) * len(data[at : at + length]) + data[at + length :],
    ]
    return choose(rng, ways)()


def _flipped(rng: Generator, data: bytes) -> bytes:
    flipped = bytearray(data)
    for at in rng.integers(len(data), size=int(rng.choice([1, 2, 8]))) if data else ():
        flipped[at] ^= 1 << int(rng.integers(8))
    return bytes(flipped)


# JSON.


def json_bytes(value: Any) -> bytes:
    """As JSON, where `DEEP` stands for lists too deep for any parser."""
    return json.dumps(value).replace(f'"{DEEP}"', "[" * _DEPTH + "]" * _DEPTH).encode()


def forge_json(rng: Generator, value: Any) -> Any:
    """A copy in which one place, of any depth, is another value, is missing, is doubled or has another name."""
    changed = {"whole": copy.deepcopy(value)}
    holder, key = choose(rng, list(_places(changed)))
    way = int(rng.integers(6))
    if way == 0 and holder is not changed:
        del holder[key]
    elif way == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif way == 1 and isinstance(holder, dict):
        holder[str(choose(rng, ODD_VALUES))] = holder.pop(key)
    elif way == 2 and isinstance(holder[key], (int, float)):
        holder[key] = holder[key] + choose(rng, [-1, 1, 7, 0.5, 2**40])
    else:
        holder[key] = copy.deepcopy(choose(rng, ODD_VALUES))
    return changed.get("whole")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or dict inside, with each of its keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def mutate_json(rng: Generator, data: bytes) -> bytes:
    """A JSON file, damaged or forged."""
    return damage(rng, data) if rng.random() < 0.3 else json_bytes(forge_json(rng, json.loads(data)))


# Arrays.


def npy(array: np.ndarray) -> bytes:
    """An array as a ``.npy`` file."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def npy_claiming(descr: str, shape: tuple[int, ...], body: bytes = b"", *, is_fortran: bool = False) -> bytes:
    """A ``.npy`` file whose header claims this type and shape, whatever follows it."""
    text = f"{{'descr': '{descr}', 'fortran_order': {is_fortran}, 'shape': {shape!r}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + body


def npy_body(data: bytes) -> bytes:
    """What follows the header."""
    return data[10 + int.from_bytes(data[8:10], "little") :]


def npy_claims(data: bytes) -> dict[str, Any]:
    """What the header of a ``.npy`` file says, as a manifest of a store has it; nothing where it is no header."""
    text = data[10 : len(data) - len(npy_body(data))]
    try:
        header = ast.literal_eval(text.decode())
        return {"shape": list(header["shape"]), "dtype": str(header["descr"])}
    except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError):
        return {}


def forge_npy(rng: Generator, data: bytes) -> bytes:
    """Another type or shape in the header, with or without the bytes for it, or other numbers."""
    array = np.load(io.BytesIO(data), allow_pickle=False)
    way = int(rng.integers(5))
    if way == 0:
        shape = choose(rng, [*ODD_SHAPES, array.shape[::-1], (array.size, 1)])
        return npy_claiming(array.dtype.str, shape, npy_body(data), is_fortran=bool(rng.integers(2)))
    if way == 1:
        return npy_claiming(choose(rng, ODD_TYPES), array.shape, npy_body(data))
    if way == 2:
        header = rng.bytes(60) if rng.random() < 0.5 else b"{'descr': " + b"(" * 900 + b"}"
        return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + npy_body(data)
    if way == 3:
        shapes = [(0,) * array.ndim, (array.size + 1,), (1,) * (array.ndim + 1), (array.size,)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return npy(np.resize(array, choose(rng, shapes)).astype(choose(rng, ["f8", "f4", "i8", "i4", "U5", "?"])))
    return npy(_other_numbers(rng, array))


def _other_numbers(rng: Generator, array: np.ndarray) -> np.ndarray:
    """Some numbers, or all, replaced by others that the type has."""
    if array.size == 0 or array.dtype.kind not in "iufb":
        return array
    forged = array.copy()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if array.dtype.kind == "f":
            odd = np.array([math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308]).astype(array.dtype)
        elif array.dtype.kind == "b":
            odd = np.array([False, True])
        else:
            limits = np.iinfo(array.dtype)
            odd = np.array([limits.min, limits.max, 0, limits.max // 2, 1], dtype=array.dtype)
            odd = np.concatenate([odd, (array.ravel()[:3] - 1), (array.ravel()[-3:] + 1)]).astype(array.dtype)
    n = array.size if rng.random() < 0.2 else int(rng.integers(1, 4))
    forged.reshape(-1)[rng.integers(array.size, size=n)] = rng.choice(odd, size=n)
    return forged


# Archives: models, checkpoints, vocabularies, image features, segmenters.


def archive_members(data: bytes) -> dict[str, bytes]:
    """The files inside a zip, by name."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def archive_of(members: Mapping[str, bytes] | Sequence[tuple[str, bytes]], *, is_packed: bool = False) -> bytes:
    """A zip of these files; a name may come twice, in a list of pairs."""
    buffer = io.BytesIO()
    pairs = members.items() if isinstance(members, Mapping) else members
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that comes twice
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED if is_packed else zipfile.ZIP_STORED) as file:
            for name, content in pairs:
                file.writestr(zipfile.ZipInfo(name), content, file.compression)
    return buffer.getvalue()


def about_of(data: bytes) -> Any:
    """The JSON text of an archive."""
    return json.loads(npy_body(archive_members(data)["about.npy"]))


def archive_about(data: bytes, about: Any) -> bytes:
    """The same archive with another JSON text."""
    text = np.frombuffer(json_bytes(about), dtype=np.uint8)
    return archive_of({**archive_members(data), "about.npy": npy(text)})


def archive_array(data: bytes, name: str, content: bytes) -> bytes:
    """The same archive with another ``.npy`` file in it."""
    return archive_of({**archive_members(data), f"{name}.npy": content})


def claim_in_directory(data: bytes, n_bytes: int) -> bytes:
    """The same zip, in whose directory the first file claims to have so many bytes."""
    place = data.index(b"PK\x01\x02")
    return data[: place + 20] + n_bytes.to_bytes(4, "little") * 2 + data[place + 28 :]


def mutate_archive(rng: Generator, data: bytes) -> bytes:
    """An archive, damaged or forged."""
    members = archive_members(data)
    name = choose(rng, list(members))
    way = int(rng.integers(10))
    if way < 3:
        return damage(rng, data)
    if way < 6:
        return archive_about(data, forge_json(rng, about_of(data)))
    if way < 8:
        return archive_of({**members, name: forge_npy(rng, members[name])})
    ways: list[Callable[[], bytes]] = [
        lambda: archive_of({n: content for n, content in members.items() if n != name}),
        lambda: archive_of([*members.items(), (name, members[name])]),
        lambda: archive_of({**members, choose(rng, ["x.npy", "../x.npy", "about", "state_w.npy"]): members[name]}),
        lambda: archive_of(members, is_packed=True),
        lambda: archive_of({**members, name: npy_claiming("<f8", (10**6,), bytes(8 * 10**6))}, is_packed=True),
        lambda: claim_in_directory(data, choose(rng, [0, 1, 2**31, 2**32 - 2])),
        lambda: archive_about(data, forge_json(rng, forge_json(rng, about_of(data)))),
    ]
    return choose(rng, ways)()


# Folders.


def with_checksum(contents: Mapping[str, Any]) -> bytes:
    """A JSON text of a store, whose checksum is right."""
    plain = {key: value for key, value in contents.items() if key != "crc32"}
    return json_bytes({**plain, "crc32": zlib.crc32(json.dumps(plain).encode())})


def forge_stored_array(shard: Path, name: str, content: bytes, **claims: Any) -> None:
    """Puts other bytes in the place of an array; the manifest has their checksum, and what else is claimed."""
    (shard / f"{name}.npy").write_bytes(content)
    manifest = json.loads((shard / "manifest.json").read_bytes())
    manifest["files"][name] |= {"bytes": len(content), "crc32": zlib.crc32(content), **claims}
    (shard / "manifest.json").write_bytes(with_checksum(manifest))


def mutate_store(rng: Generator, folder: Path) -> None:
    """Damages or forges one file of a store, in place."""
    file = choose(rng, sorted(path for path in folder.rglob("*") if path.is_file()))
    data = file.read_bytes()
    way = rng.random()
    if way < 0.2:
        file.write_bytes(damage(rng, data))
    elif way < 0.25:
        file.unlink()
    elif file.suffix == ".json":
        forged = forge_json(rng, json.loads(data))
        file.write_bytes(with_checksum(forged) if isinstance(forged, dict) else json_bytes(forged))
    else:
        content = forge_npy(rng, data)
        forge_stored_array(file.parent, file.stem, content, **(npy_claims(content) if rng.random() < 0.7 else {}))


def mutate_cache(rng: Generator, entry: Path) -> None:
    """Damages or forges one file of an entry of a feature cache, in place."""
    file = choose(rng, sorted(path for path in entry.iterdir() if path.is_file()))
    data = file.read_bytes()
    if rng.random() < 0.2:
        file.write_bytes(damage(rng, data))
    elif file.suffix == ".json":
        file.write_bytes(mutate_json(rng, data))
    else:
        forge_cached_array(entry, file.stem, forge_npy(rng, data))


def forge_cached_array(entry: Path, name: str, content: bytes) -> None:
    """Puts other bytes in the place of an array of an entry, with their checksum."""
    (entry / f"{name}.npy").write_bytes(content)
    checks = json.loads((entry / "checksums.json").read_bytes())
    checks["checksums"][name] = zlib.crc32(content)
    (entry / "checksums.json").write_bytes(json_bytes(checks))


# Texts of words and numbers: models and evidence of the UAI competitions.


def mutate_text(rng: Generator, data: bytes) -> bytes:
    """Words exchanged, dropped, repeated and spoilt, or bytes damaged."""
    if rng.random() < 0.2:
        return damage(rng, data)
    words = data.decode().split()
    for _ in range(int(rng.integers(1, 4))):
        at, way = int(rng.integers(len(words) + 1)), int(rng.integers(5))
        if way < 3:
            words[at : at + (way > 0)] = [choose(rng, ODD_WORDS)]
        elif way == 3:
            del words[at : at + 1]
        else:
            words[at:at] = words[at : at + 3] * int(rng.choice([1, 100]))
    return " ".join(words).encode()
