"""Images resized by Pillow, for tests/transform/transform_spec.lua. Made once, with Pillow 12.3.0 and numpy 2.4.6, in this folder:
python3 make.py. (Pillow 13 begins with the height for some sizes, and then differs by 1 here and there.) Where an element
of "nearest" lies exactly between two, Pillow takes the one that its rounding errors point to: that never happens to odd sizes."""
import numpy as np
from PIL import Image

rng = np.random.default_rng(5)
images = {
    "rgb": rng.integers(0, 256, (23, 17, 3), dtype=np.uint8),
    "grey": rng.integers(0, 256, (31, 41), dtype=np.uint8),
    "float": rng.normal(0, 100, (19, 27)).astype(np.float32),
}
sizes = [(7, 5), (23, 9), (11, 16), (40, 50), (1, 1), (22, 34)]
for name, image in images.items():
    np.save(name + ".npy", image[None])
    for height, width in sizes:
        for filter in ["bilinear", "nearest"]:
            out = Image.fromarray(image).resize((width, height), getattr(Image.Resampling, filter.upper()))
            np.save(f"{name}_{filter}_{height}x{width}.npy", np.asarray(out)[None])
