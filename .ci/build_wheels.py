"""Builds the wheels for Linux from a source distribution, without containers, and checks what they ask of a system.

``python .ci/build_wheels.py DIST PYTHON...`` finds the source distribution in DIST and leaves the wheels there. The
compiler is Zig's, a Clang that links against the C library it is told: that of manylinux2014, on both processors. An
interpreter before 3.12 has wheels of its own; the first later one makes those of the stable ABI, for all after it.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import ziglang
from elftools.elf.elffile import ELFFile

PROCESSORS = ["x86_64", "aarch64"]
GLIBC = "2.17"  # manylinux2014
STABLE_ABI = (3, 12)
#: Zig's own choices are a level of optimisation below the one asked for, and a frame pointer in every function.
FLAGS = "-fomit-frame-pointer -Xclang -O3"
#: The C++ library is inside the wheel; its names must not meet those of another one in the same process.
EXPORTS = "{ global: PyInit__core; local: *; };"


def run(*command: str | Path, **variables: str) -> None:
    """Runs a command with the tools of this environment on its path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, check=True, env={**os.environ, "PATH": path, **variables})


def version(python: str) -> tuple[int, int]:
    """Major and minor version of an interpreter."""
    code = "import sys; print(*sys.version_info[:2])"
    major, minor = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    return int(major), int(minor)


def missing_names(wheel: Path) -> list[str]:
    """Names of C++ that a core asks for and nobody has: all of its C++ library is inside."""
    with zipfile.ZipFile(wheel) as files:
        (core,) = [name for name in files.namelist() if name.endswith(".so")]
        with files.open(core) as file:
            symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
            return [s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name.startswith("_Z")]


def build(sdist: Path, python: str, processor: str, dist: Path) -> Path:
    """One wheel, checked; its tag is what auditwheel finds that it can run on."""
    major, minor = version(python)
    with tempfile.TemporaryDirectory() as folder:
        raw, exports = Path(folder, "raw"), Path(folder, "exports.map")
        exports.write_text(EXPORTS)
        run(python, "-m", "venv", Path(folder, "venv"))
        run(
            *(Path(folder, "venv", "bin", "python"), "-m", "pip", "wheel", "--quiet", "--no-deps"),
            *("--wheel-dir", raw, sdist),
            CXX=f"{Path(ziglang.__file__).with_name('zig')} c++ -target {processor}-linux-gnu.{GLIBC}",
            CXXFLAGS=FLAGS,
            LDFLAGS=f"-Wl,--version-script={exports}",
            SETUPTOOLS_EXT_SUFFIX=f".cpython-{major}{minor}-{processor}-linux-gnu.so",
        )
        (wheel,) = raw.iterdir()
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", f"linux_{processor}", wheel)
        (wheel,) = raw.iterdir()
        checked = Path(folder, "checked")
        run("auditwheel", "repair", "--only-plat", "--wheel-dir", checked, wheel)
        (wheel,) = checked.iterdir()
        if f"manylinux2014_{processor}" not in wheel.name:
            raise SystemExit(f"{wheel.name} asks for more than manylinux2014 has: see `auditwheel show`.")
        if missing := missing_names(wheel):
            raise SystemExit(f"{wheel.name} cannot be loaded, since nothing has {missing[0]}: see cpp/simd.hpp.")
        if "-abi3-" in wheel.name:
            run("abi3audit", "--strict", "--report", wheel)
        return wheel.replace(dist / wheel.name)


def main() -> None:
    """Builds what the interpreters on the command line are for."""
    dist = Path(sys.argv[1])
    (sdist,) = dist.glob("*.tar.gz")
    pythons = sorted(sys.argv[2:], key=version)
    stable = [python for python in pythons if version(python) >= STABLE_ABI][:1]
    for python in [python for python in pythons if version(python) < STABLE_ABI] + stable:
        for processor in PROCESSORS:
            print(build(sdist, python, processor, dist), flush=True)


if __name__ == "__main__":
    main()
