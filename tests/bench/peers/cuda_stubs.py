"""Empty stand-ins for the CUDA libraries that PyPI's PyTorch names: 2.5 GB of them, never called where there is no GPU,
but without them it cannot be loaded. PyPI has no PyTorch without CUDA, and PyTorch's own index may not be reachable.
Each library that is named and not installed beside it becomes one of empty functions, with the version it is asked for.
Run with the Python whose PyTorch it is."""
import collections
import pathlib
import re
import subprocess
import sysconfig

packages = pathlib.Path(sysconfig.get_path("platlib"))
folder = packages / "torch" / "lib"
objects = [*folder.glob("*.so"), *(packages / "torch").glob("_C.*.so")]


def lines(*command):
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout.splitlines()


# Library -> version -> names: what the objects leave open, from `readelf`, which tells the version and its library.
installed = {path.name for path in (packages / "nvidia").glob("*/lib/*")}
wanted = {}
for path in objects:
    for line in lines("readelf", "-dW", path):
        library = re.search(r"NEEDED.*\[(lib(?:cu|nccl|nv)\S+)\]", line)
        if library and library[1] not in installed:
            wanted.setdefault(library[1], collections.defaultdict(set))
for path in objects:
    for line in lines("nm", "-D", "--undefined-only", path):
        name, _, version = line.split()[-1].partition("@")
        if version in wanted:
            wanted[version][version].add(name)
        elif version == "NVSHMEM":
            wanted["libnvshmem_host.so.3"][version].add(name)
        elif not version and re.match("nccl|cuFile|cusparseLt", name):
            wanted["libnccl.so.2"][""].add(name)

for library, versions in wanted.items():
    version, names = next(iter(versions.items()), ("", ()))
    (folder / "stub.c").write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    (folder / "stub.map").write_text(f"{version} {{ global: *; }};\n")
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{library}", "-o", folder / library,
                    folder / "stub.c", *([f"-Wl,--version-script={folder}/stub.map"] if version else [])], check=True)
