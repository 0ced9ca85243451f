"""install.py FOLDER [PEER…]: a Python environment with the peers, by pip; kept, and added to only where a version
changed. Without names all of them.

A peer that cannot be installed is left out, and the table says so. Needs the network the first time; and for FFCV,
which comes as source, Debian's python3-dev, g++, libopencv-dev and libturbojpeg0-dev, for SPDL its FFmpeg."""
import pathlib
import subprocess
import sys
import venv

# By peer: what it is shown as, and the arguments of each `pip install`. What --no-deps leaves out is not used here:
# PyTorch's 2.5 GB of CUDA libraries (see cuda_stubs.py), and OpenCV with windows.
PEERS = {
    "numpy": ("numpy 2.3.5, JAX 0.10.2", ["numpy==2.3.5 jax==0.10.2"]),
    "torch": ("PyTorch 2.15.0", [
        "numpy==2.3.5 filelock fsspec jinja2 networkx sympy typing-extensions",
        "--no-deps torch==2.15.0 nvidia-cuda-runtime==13.2.86"]),
    "ffcv": ("FFCV 1.0.2", [
        "numpy==2.3.5 assertpy fastargs numba==0.68.1 opencv-python-headless pandas psutil terminaltables tqdm",
        "--no-deps pytorch_pfn_extras", "--no-deps ffcv==1.0.2"]),
    "grain": ("Grain 0.2.18", ["numpy==2.3.5 grain==0.2.18"]),
    "tfdata": ("tf.data 2.20.0", ["numpy==2.3.5 tensorflow==2.20.0"]),
    "datarax": ("datarax 0.1.4", ["numpy==2.3.5 jax==0.10.2 tensorflow==2.20.0 datarax==0.1.4"]),
    "array_record": ("array_record 0.8.6", ["numpy==2.3.5 array_record==0.8.6"]),
    "tfrecord": ("tfrecord 1.14.6", ["numpy==2.3.5 tfrecord==1.14.6"]),
    "webdataset": ("WebDataset 1.0.2", ["numpy==2.3.5 webdataset==1.0.2"]),
    "streaming": ("Streaming 0.13.0", [  # which asks for an older numpy, and for the clients of all clouds
        "numpy==2.3.5 boto3 brotli catalogue matplotlib python-snappy pyyaml requests tqdm transformers xxhash<4 zstd",
        "--no-deps mosaicml-streaming==0.13.0"]),
    "pyarrow": ("pyarrow 26.0.0", ["numpy==2.3.5 pyarrow==26.0.0"]),
    "datasets": ("datasets 5.2.0", ["numpy==2.3.5 pyarrow==26.0.0 datasets==5.2.0"]),
    "megatron": ("Megatron-Core 0.16.1", ["numpy==2.3.5 packaging", "--no-deps megatron-core==0.16.1"]),
    "torchvision": ("torchvision 0.29.2", ["numpy==2.3.5 pillow", "--no-deps torchvision==0.29.2"]),
    "pillow": ("Pillow", ["numpy==2.3.5 pillow"]),
    "dali": ("DALI 2.4.0", ["numpy==2.3.5 nvidia-dali-cuda130==2.4.0"]),
    "spdl": ("SPDL 0.8.0", ["numpy==2.3.5 spdl==0.8.0"]),
    "tokenizers": ("tokenizers 0.23.3, tiktoken 0.14.0", ["numpy==2.3.5 tokenizers==0.23.3 tiktoken==0.14.0"]),
}
NEEDS = {"ffcv": "torch", "webdataset": "torch", "streaming": "torch", "torchvision": "torch",
         "datasets": "torch", "megatron": "torch"}


def done(folder, peer):
    return pathlib.Path(folder) / f"{peer}.installed"


def installed(folder, peer):
    stamp = done(folder, peer)
    return stamp.exists() and stamp.read_text() == "\n".join(PEERS[peer][1])


def install(folder, peer):
    """Returns None, or why not."""
    python = pathlib.Path(folder) / "bin" / "python"
    commands = [[python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--prefer-binary", *text.split()]
                for text in PEERS[peer][1]]
    if peer == "torch":
        commands.append([python, pathlib.Path(__file__).with_name("cuda_stubs.py")])
    for command in commands:
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            lines = [line for line in result.stderr.splitlines() if "rror" in line]
            return (lines or result.stderr.splitlines() or ["no reason given"])[-1].strip()
    done(folder, peer).write_text("\n".join(PEERS[peer][1]))
    return None


def main(folder, *wanted):
    missing = [peer for peer in wanted or PEERS if not installed(folder, peer)]
    if not missing:
        return
    print(f"installing by pip into {folder}: {', '.join(PEERS[peer][0] for peer in missing)}", flush=True)
    if not (pathlib.Path(folder) / "bin" / "pip").exists():
        venv.create(folder, with_pip=True)
    failed = set()
    for peer in missing:
        why = f"it needs {PEERS[NEEDS[peer]][0]}" if NEEDS.get(peer) in failed else install(folder, peer)
        if why:
            failed.add(peer)
            print(f"  without {PEERS[peer][0]}: {why}", flush=True)
        if why and peer == "numpy":
            sys.exit("the peers need the network the first time: pip finds neither numpy nor JAX")


if __name__ == "__main__":
    main(*sys.argv[1:])
