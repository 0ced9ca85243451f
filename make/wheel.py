"""Puts the wheel together, for make/wheel.mk: wheel.py BUILD VERSION PLUGIN..."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Opened at run time, so that no file says that it is needed. They lie beside the library, which looks there first.
OPENED = ["libluajit-5.1.so.2", "libopenblas.so.0"]
# The user's own, or every system's.
LEFT_OUT = ["libmpi.so.*", "libmpich.so.*", "libcuda.so.*", "libcudart.so.*", "libcublas*.so.*", "libnccl.so.*"]
COMMON_LICENSES = Path("/usr/share/common-licenses")


def output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def find(name: str) -> Path:
    """A library where the system has it."""
    found = re.search(rf"^\s*{re.escape(name)} .*x86-64.* => (\S+)$", output("/sbin/ldconfig", "-p"), re.MULTILINE)
    if not found:
        sys.exit(f"wheel: there is no {name}; `make deps` installs it")
    return Path(found[1])


def needed(path: Path) -> list[Path]:
    """What a file needs, directly or not."""
    return [Path(file) for file in re.findall(r"=> (/\S+) ", output("ldd", str(path)))]


def package_of(path: Path) -> str:
    """Debian's package that brought a file, which may be known by either name of its folder."""
    real = str(path.resolve())
    for name in [real, real.removeprefix("/usr"), f"/usr{real}", str(path)]:
        found = subprocess.run(["dpkg", "-S", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    sys.exit(f"wheel: {path} is of no Debian package: whose licence has it?")


def put_licences(folder: Path, libraries: list[Path]) -> None:
    """The copyright notice of each library's package, and the licences that these only name."""
    texts = ""
    for package in sorted({package_of(path) for path in libraries}):
        notice = Path("/usr/share/doc") / package / "copyright"
        shutil.copyfile(notice, folder / f"{package}.copyright")
        texts += notice.read_text(errors="replace")
    for name in sorted(set(re.findall(rf"{COMMON_LICENSES}/([A-Za-z0-9.-]*[A-Za-z0-9])", texts))):
        if (COMMON_LICENSES / name).exists():
            shutil.copyfile(COMMON_LICENSES / name, folder / f"{name}.txt")


def put_files(tree: Path, version: str, files: list[Path]) -> None:
    """The package, with what it carries, as setuptools wants it. `files` find what they need beside themselves."""
    shutil.copytree("python", tree, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile("LICENSE", tree / "LICENSE")
    (tree / "VERSION").write_text(f"{version}\n")
    for path in files:
        copy = tree / "shardrt" / path.name
        shutil.copy(path, copy)
        subprocess.run(["strip", "--strip-unneeded", copy], check=True)
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", copy], check=True)


def main() -> None:
    build, version, plugins = Path(sys.argv[1]), sys.argv[2], [Path(word) for word in sys.argv[3:]]
    work, dist = build / "wheel", Path("dist")
    tree, raw, repaired, unpacked = (work / name for name in ["tree", "raw", "repaired", "unpacked"])
    for folder in [tree, raw, repaired, unpacked]:
        shutil.rmtree(folder, ignore_errors=True)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    library = build / "libshardrt.so.0"
    opened = [find(name) for name in OPENED]
    put_files(tree, version, [library, build / "shardrt", *plugins, *opened])

    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*pip, "-w", raw, tree], check=True)
    left_out = [word for name in LEFT_OUT for word in ["--exclude", name]]
    subprocess.run(["auditwheel", "repair", *left_out, "-w", repaired, *raw.glob("*.whl")], check=True)

    # What auditwheel copied has a mark in its name: libcurl-1a2b3c4d.so.4.8.0.
    subprocess.run(["wheel", "unpack", "-d", unpacked, *repaired.glob("*.whl")], check=True, stdout=subprocess.DEVNULL)
    top = unpacked / f"shardrt-{version}"
    known = {path.resolve().name: path for file in [library, *opened] for path in needed(file)}
    copied = [re.sub(r"-[0-9a-f]{8}(?=\.)", "", path.name) for path in (top / "shardrt.libs").iterdir()]
    put_licences(top / f"shardrt-{version}.dist-info" / "licenses", [*opened, *(known[name] for name in copied)])
    dist.mkdir(exist_ok=True)
    subprocess.run(["wheel", "pack", "-d", dist, top], check=True, stdout=subprocess.DEVNULL)
    for path in repaired.glob("*.whl"):
        print(f"dist/{path.name}: {(dist / path.name).stat().st_size / 1e6:.1f} MB, with {len(copied)} libraries")


if __name__ == "__main__":
    main()
