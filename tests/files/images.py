"""Makes tests/files/images: JPEG files by Pillow and libjpeg-turbo's cjpeg, PNG files by Pillow and from libpng's
PngSuite, WebP files by Pillow and libwebp's cwebp, and reference.txt: what Pillow decodes each to. Needs pillow, numpy,
libjpeg-turbo-progs, webp, and libpng's source (`apt source libpng1.6`):

    images.py FOLDER/libpng-1.6.39/contrib/pngsuite     or, for the WebP files and reference.txt alone, images.py webp
"""
import glob
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
from PIL import Image

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def picture(height, width, channels):
    """Smooth, with edges and some noise, so that neighbours matter."""
    y, x = np.mgrid[:height, :width]
    noise = np.random.default_rng(height * width).integers(0, 24, (height, width, channels))
    planes = [110 + 60 * np.sin(x / (5 + c)) + 50 * np.cos(y / (4 + 2 * c)) + 40 * ((x + y * (c + 1)) // 9 % 2)
              for c in range(channels)]
    return np.clip(np.stack(planes, -1) + noise - 30, 0, 255).astype(np.uint8)


def jpegs():
    folder = HERE + "/jpeg/"
    rgb, grey, cmyk = (Image.fromarray(picture(45, 149, c).squeeze(), m) for c, m in [(3, "RGB"), (1, "L"), (4, "CMYK")])
    for name, o in {
        "444": {"subsampling": "4:4:4"}, "422": {"subsampling": "4:2:2"}, "420": {"subsampling": "4:2:0"},
        "420-progressive": {"subsampling": "4:2:0", "progressive": True},
        "422-restart": {"subsampling": "4:2:2", "restart_marker_blocks": 3},
        "rgb": {"keep_rgb": True}, "low": {"quality": 10},
    }.items():
        rgb.save(folder + name + ".jpg", **{"quality": 60, **o})
    rgb.crop((0, 0, 1, 1)).save(folder + "one.jpg")
    rgb.crop((0, 0, 17, 3)).save(folder + "small.jpg")
    grey.save(folder + "grey.jpg")
    grey.save(folder + "grey-progressive.jpg", progressive=True)
    cmyk.save(folder + "cmyk.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees, which opening it does not undo
    rgb.crop((0, 0, 40, 20)).save(folder + "turned.jpg", exif=exif)
    rgb.save("/tmp/picture.ppm")
    for name, options in {"440": ["-sample", "1x2"], "411": ["-sample", "4x1"], "410": ["-sample", "4x2"],
                          "420-restart": ["-sample", "2x2", "-restart", "1"],
                          "440-progressive": ["-sample", "1x2", "-progressive"],
                          "arithmetic": ["-arithmetic"]}.items():
        subprocess.run(["cjpeg", "-quality", "60", *options, "-outfile", folder + name + ".jpg", "/tmp/picture.ppm"],
                       check=True)
    # YCCK, as Photoshop writes: what the CMYK file holds, with a transform of 2 in Adobe's marker.
    data = bytearray(open(folder + "cmyk.jpg", "rb").read())
    at = data.index(b"Adobe")
    data[at + 11] = 2
    open(folder + "ycck.jpg", "wb").write(data)


def pngs(suite):
    folder = HERE + "/png/"
    for path in glob.glob(suite + "/*.png") + glob.glob(suite + "/interlaced/*.png"):
        shutil.copy(path, folder)
    rgb = picture(31, 45, 3)
    Image.fromarray(rgb).save(folder + "rgb.png")
    Image.fromarray(rgb).quantize(16).save(folder + "palette.png", bits=4)
    Image.fromarray(rgb).quantize(200).save(folder + "transparent.png", transparency=3)
    Image.fromarray(picture(31, 45, 4), "RGBA").save(folder + "rgba.png")


def chunk(name, body):
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def riff(*chunks):
    return chunk(b"RIFF", b"WEBP" + b"".join(chunks))


def frame_of(name, left, top, width, height):
    """A still WebP as one frame of a moving picture, at an even place."""
    still = open(f"{HERE}/webp/{name}.webp", "rb").read()[12:]
    if still[:4] == b"VP8X":
        still = still[18:]
    numbers = [left // 2, top // 2, width - 1, height - 1, 100]
    return chunk(b"ANMF", b"".join(struct.pack("<I", n)[:3] for n in numbers) + b"\0" + still)


def webps():
    folder = HERE + "/webp/"
    rgb = Image.fromarray(picture(45, 149, 3))
    alpha = Image.fromarray(picture(31, 45, 4), "RGBA")
    rgb.save(folder + "lossy.webp", quality=60, method=6)
    rgb.save(folder + "high.webp", quality=98)
    rgb.crop((0, 0, 1, 1)).save(folder + "one.webp")
    rgb.crop((0, 0, 17, 3)).save(folder + "small.webp", quality=70)
    rgb.crop((0, 0, 60, 30)).save(folder + "lossless.webp", lossless=True)
    rgb.crop((0, 0, 60, 30)).quantize(9).convert("RGB").save(folder + "palette.webp", lossless=True)
    Image.fromarray(picture(40, 33, 1).squeeze()).save(folder + "grey.webp", quality=50)
    alpha.save(folder + "alpha.webp", quality=60)
    alpha.save(folder + "lossless-alpha.webp", lossless=True, exact=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees, which opening it does not undo
    rgb.crop((0, 0, 40, 20)).save(folder + "turned.webp", exif=exif, xmp=b"<x/>")
    rgb.save("/tmp/picture.png")
    for name, options in {"simple-filter": ["-nostrong", "-f", "70"], "no-filter": ["-f", "0"],
                          "sharp": ["-sharp_yuv", "-sharpness", "5", "-segments", "4", "-sns", "90"]}.items():
        subprocess.run(["cwebp", "-quiet", "-q", "30", *options, "/tmp/picture.png", "-o", folder + name + ".webp"],
                       check=True)
    images = [alpha.rotate(90 * i) for i in range(3)]
    images[0].save(folder + "moving.webp", save_all=True, append_images=images[1:], duration=50, lossless=True)
    # The first frame does not cover all: 45 x 31 within 60 x 40.
    canvas = chunk(b"VP8X", b"\x12\0\0\0" + struct.pack("<I", 59)[:3] + struct.pack("<I", 39)[:3])
    for name, still in [("moving-part", "alpha"), ("moving-part-lossless", "lossless-alpha")]:
        frames = [frame_of(still, 6, 4, 45, 31), frame_of(still, 0, 0, 45, 31)]
        with open(f"{folder}{name}.webp", "wb") as file:
            file.write(riff(canvas, chunk(b"ANIM", b"\x10\x20\x30\xff\0\0"), *frames))


def decode(path):
    """What is meant: Pillow's pixels; transparency left out, 16 bits as their first 8."""
    image = Image.open(path)
    if image.mode.startswith("I"):
        grey = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
        return np.stack([grey] * 3, -1), grey
    rgb = np.asarray(image.convert("RGBA").convert("RGB") if image.mode == "P" else image.convert("RGB"))
    return rgb, np.asarray(image if image.mode == "L" else Image.fromarray(rgb).convert("L"))


if __name__ == "__main__":
    for name in ["webp"] if sys.argv[1] == "webp" else ["jpeg", "png", "webp"]:
        shutil.rmtree(f"{HERE}/{name}", ignore_errors=True)
        os.makedirs(f"{HERE}/{name}")
    if sys.argv[1] != "webp":
        jpegs()
        pngs(sys.argv[1])
    webps()
    with open(HERE + "/reference.txt", "w") as out:
        for path in sorted(glob.glob(HERE + "/*/*")):
            rgb, grey = decode(path)
            print(os.path.relpath(path, HERE), *rgb.shape[:2], "%08x %08x" % (crc32c(rgb.tobytes()),
                                                                              crc32c(grey.tobytes())), file=out)
