"""Makes tests/files/audio: sound files by soundfile, and reference.txt: what soundfile reads of each. Needs soundfile
and numpy, of PyPI: audio.py

Each line of reference.txt: file, frames, channels, rate, and CRC-32C of what is read as float32 and as int16; "-" for
those of Ogg and MP3, whose numbers differ from build to build of the decoders. tests/transform/decode_audio_spec.lua
reads them."""
import os
import shutil

import numpy as np
import soundfile

from images import crc32c

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "audio")


def tune(frames, channels, rate=8000):
    """Tones that come and go, with a little noise: float64 in (-1, 1)."""
    t = np.arange(frames)[:, None] / rate
    c = np.arange(channels)[None, :]
    noise = np.random.default_rng(frames + channels).uniform(-1, 1, (frames, channels))
    return 0.55 * np.sin(2 * np.pi * (200 + 90 * c) * t * (1 + t)) + 0.3 * np.cos(37 * t + c) + 0.004 * noise


def write(name, data, rate, **options):
    soundfile.write(os.path.join(HERE, name), data, rate, **options)


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    os.makedirs(HERE)
    for kind in ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW", "IMA_ADPCM", "MS_ADPCM"]:
        write(f"{kind.lower()}.wav", tune(700, 2), 8000, subtype=kind)
    loud = 3 * tune(300, 1)
    loud[:4, 0] = [1, -1, 40000, -40000]
    write("loud.wav", loud, 22050, subtype="FLOAT")  # beyond [-1, 1), and beyond int16
    write("one.wav", tune(1, 1), 44100, subtype="PCM_16")
    write("none.wav", tune(0, 1), 44100, subtype="PCM_16")
    write("six.wav", tune(100, 6), 48000, subtype="PCM_24", format="WAVEX")
    write("rf64.wav", tune(100, 2), 48000, subtype="PCM_16", format="RF64")
    for kind, frames, channels in [("PCM_S8", 5000, 1), ("PCM_16", 9000, 1), ("PCM_24", 5000, 2)]:
        write(f"{kind.lower()}.flac", tune(frames, channels), 16000, subtype=kind)
    write("vorbis.ogg", tune(9000, 2), 16000, subtype="VORBIS")
    write("layer3.mp3", tune(9000, 1, 16000), 16000, subtype="MPEG_LAYER_III")
    # Written to a pipe, by a program that could not go back to say how long it is.
    piped = bytearray(open(f"{HERE}/pcm_16.wav", "rb").read())
    at = piped.index(b"data")
    piped[4:8] = piped[at + 4:at + 8] = b"\xff" * 4
    open(f"{HERE}/piped.wav", "wb").write(piped)

    with open(f"{HERE}/reference.txt", "w") as out:
        for name in sorted(os.listdir(HERE)):
            if name == "reference.txt":
                continue
            path = os.path.join(HERE, name)
            sums = ["-", "-"]
            for i, dtype in enumerate(["float32", "int16"]):
                data, rate = soundfile.read(path, dtype=dtype, always_2d=True)
                if name[-4:] in (".wav", "flac"):
                    sums[i] = "%08x" % crc32c(np.ascontiguousarray(data).tobytes())
            print(name, *data.shape, rate, *sums, file=out)


if __name__ == "__main__":
    main()
