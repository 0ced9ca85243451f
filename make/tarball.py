"""Puts the tarball together, for make/tarball.mk: tarball.py FOLDER TARBALL. FOLDER is what `make install` made."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from wheel import LEFT_OUT, OPENED, find, needed, output, put_licences

# Every system's, too: glibc, and what comes with gcc.
SYSTEMS = ["libc.so.*", "libm.so.*", "libdl.so.*", "librt.so.*", "libpthread.so.*", "libresolv.so.*", "ld-linux*"]
SYSTEMS += ["libgcc_s.so.*", "libstdc++.so.*"]
MOST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)}

MODULE = """#%Module1.0
# module use FOLDER/share/modulefiles; module load shardrt
set root [file normalize $ModulesCurrentModulefile]
foreach above {version name modulefiles share} { set root [file dirname $root] }
module-whatis "shardrt: loads data for distributed jobs"
prepend-path PATH            $root/bin
prepend-path MANPATH         $root/share/man
prepend-path LIBRARY_PATH    $root/lib
prepend-path LD_LIBRARY_PATH $root/lib
prepend-path CPATH           $root/include
prepend-path PKG_CONFIG_PATH $root/lib/pkgconfig
"""


def carried(path: Path) -> bool:
    return not any(path.match(name) for name in [*SYSTEMS, *LEFT_OUT])


def gather(files: list[Path]) -> dict[str, Path]:
    """What files need, by name; not what MPI and the systems' own libraries need."""
    found: dict[str, Path] = {}
    for file in files:
        paths = {path.name: path for path in needed(file)}
        for name in re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", str(file))):
            if name in paths and name not in found and carried(Path(name)):
                found[name] = paths[name]
                files.append(paths[name])
    return found


def check_versions(files: list[Path]) -> None:
    """No file may need newer versions of what every system has than its oldest one has."""
    for file in files:
        for name, number in re.findall(r"\b([A-Z]+)_([0-9.]*[0-9])\b", output("objdump", "-T", str(file))):
            if tuple(int(part) for part in number.split(".")) > MOST.get(name, (1 << 30,)):
                sys.exit(f"tarball: {file.name} needs {name}_{number}, which is newer than Debian 12, Ubuntu 22.04 and RHEL 9 all have")


def main() -> None:
    folder, tarball = Path(sys.argv[1]), Path(sys.argv[2])
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    inner = folder / "lib/shardrt"
    inner.mkdir(parents=True, exist_ok=True)
    (folder / "lib/libshardrt.a").unlink()  # whose libraries nobody has
    own = {folder / "bin/shardrt": "$ORIGIN/../lib/shardrt", folder / "lib/libshardrt.so.0": "$ORIGIN/shardrt"}
    own |= {path: "$ORIGIN" for path in inner.glob("*.so")}
    opened = [find(name) for name in OPENED]
    libraries = {path.name: path for path in opened} | gather([*own, *opened])
    for name, path in libraries.items():
        shutil.copyfile(path, inner / name)
        own[inner / name] = "$ORIGIN"
    for path, rpath in own.items():
        subprocess.run(["strip", "--strip-unneeded", path], check=True)
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", rpath, path], check=True)
        path.chmod(0o755)
    check_versions(list(own))

    licences = folder / "share/doc/shardrt/licenses"
    licences.mkdir(parents=True)
    put_licences(licences, list(libraries.values()))
    version = folder.name.split("-")[1]
    module = folder / "share/modulefiles/shardrt" / version
    module.parent.mkdir(parents=True)
    module.write_text(MODULE)
    pc = folder / "lib/pkgconfig/shardrt.pc"
    text = re.sub(r"^prefix=.*", "prefix=${pcfiledir}/../..", pc.read_text(), flags=re.MULTILINE)
    pc.write_text(re.sub(r"^Libs.private:.*\n", "", text, flags=re.MULTILINE))
    tarball.parent.mkdir(exist_ok=True)
    subprocess.run(["tar", "-cJf", tarball.resolve(), "--owner=0", "--group=0", "--numeric-owner", "-C", folder.parent, folder.name], check=True)
    print(f"{tarball}: {tarball.stat().st_size / 1e6:.1f} MB, with {len(libraries)} libraries")


main()
