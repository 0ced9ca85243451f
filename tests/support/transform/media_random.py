"""Sounds and WebP images at random, and what soundfile and Pillow read of each: media_random.py SEED FOLDER

FOLDER/list has a line for each way to read a file: sound or image, the file, dtype or channels, the two sizes (of an
image without its channels), and the CRC-32 of what comes out."""
import sys
import zlib

import numpy as np
import soundfile
from PIL import Image

KINDS = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"]


def crc(array):
    return "%08x" % zlib.crc32(np.ascontiguousarray(array).tobytes())


def sound(rng, path, i):
    data = rng.uniform(-1, 1, (int(rng.integers(1, 20000)), int(rng.integers(1, 4)))) * rng.choice([0.01, 0.5, 1])
    flac = i % 4 == 3
    kind = ["PCM_16", "PCM_24"][i // 4 % 2] if flac else KINDS[i % len(KINDS)]
    soundfile.write(path, data, int(rng.choice([8000, 16000, 44100])), format="FLAC" if flac else "WAV", subtype=kind)
    for dtype in ["float32", "int16"]:
        array, _ = soundfile.read(path, dtype=dtype, always_2d=True)
        yield "sound", path, dtype, *array.shape, crc(array)


def image(rng, path, i):
    height, width = int(rng.integers(1, 200)), int(rng.integers(1, 300))
    coarse = rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3 + i % 2), dtype=np.uint8)
    Image.fromarray(coarse).resize((width, height), Image.BICUBIC).save(
        path, "WEBP", lossless=i % 3 == 0, quality=int(rng.integers(1, 100)), exact=i % 5 == 0)
    for channels, mode in [(3, "RGB"), (1, "L")]:
        yield "image", path, channels, height, width, crc(np.asarray(Image.open(path).convert(mode)))


def main():
    rng, folder = np.random.default_rng(int(sys.argv[1])), sys.argv[2]
    with open(f"{folder}/list", "w") as out:
        for i in range(16):
            for make in [sound, image]:
                for words in make(rng, f"{folder}/{make.__name__}{i}", i):
                    print(*words, file=out)


main()
