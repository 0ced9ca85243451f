"""How results lie in JAX, for tests/ops/result_layout_spec.lua: `python3 layouts.py >layouts.txt`, with jax 0.10.2.

A line is: word, mesh, how, operands, "=", results. How: the axis, with "/3" for three parts, "@2,5" for where it is
cut, "@2,9,1" for start, stop and step. Of an array: its shape, and of each dimension the mesh axes that cut it ("-":
none). Slices are compiled: called alone, JAX takes one for a slice that is known only as it runs, and makes it whole.
"""
import os
import random

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

meshes = {}
for name in ["8", "2x4", "4x2", "2x2x2"]:
    sizes = [int(n) for n in name.split("x")]
    meshes[name] = Mesh(np.array(jax.devices()).reshape(sizes), tuple("abc"[:len(sizes)]))
rng = random.Random(7)


def parts(mesh, axes):
    return int(np.prod([mesh.shape[axis] for axis in axes]))


def some_shape(ndim):
    return [rng.choice([4, 8, 8, 12, 16, 16, 24]) for _ in range(ndim)]


def some_cuts(mesh, shape):
    left, cuts = list(mesh.axis_names), [[] for _ in shape]
    rng.shuffle(left)
    for d in rng.sample(range(len(shape)), len(shape)):
        most = rng.choice([0, 0, 1, 1, 2])
        for axis in list(left):
            if len(cuts[d]) < most and shape[d] % parts(mesh, cuts[d] + [axis]) == 0:
                cuts[d].append(axis)
                left.remove(axis)
    return cuts


def fits(mesh, shape, cuts):
    return all(n % parts(mesh, axes) == 0 for n, axes in zip(shape, cuts))


def put(mesh, shape, cuts):
    spec = PartitionSpec(*[tuple(axes) or None for axes in cuts])
    return jax.device_put(np.zeros(shape, "float32"), NamedSharding(mesh, spec))


def text(shape, cuts):
    return ",".join(map(str, shape)) + ":" + "|".join("".join(axes) or "-" for axes in cuts)


def lies(y):
    entries = list(y.sharding.spec) + [None] * (y.ndim - len(y.sharding.spec))
    return text(y.shape, [entry or "" for entry in entries])


def write(word, name, how, shapes, cuts, call):
    results = call(*[put(meshes[name], *each) for each in zip(shapes, cuts)])
    print(word, name, how, *map(text, shapes, cuts), "=", *map(lies, results))


def concatenate(name):
    mesh, shape = meshes[name], some_shape(rng.randint(1, 3))
    axis, shapes = rng.randrange(len(shape)), []
    for _ in range(rng.choice([2, 2, 2, 3])):
        shapes.append(list(shape))
        if rng.random() < 0.5:
            shapes[-1][axis] = rng.choice([1, 3, 4, 5, 8, 12, 16, 20])
    cuts = [some_cuts(mesh, each) for each in shapes]
    if rng.random() < 0.5:
        cuts = [cuts[0] if fits(mesh, each, cuts[0]) else own for each, own in zip(shapes, cuts)]
    write("concatenate", name, axis, shapes, cuts, lambda *xs: [jnp.concatenate(xs, axis)])


def stack(name):
    mesh, shape, count = meshes[name], some_shape(rng.randint(1, 2)), rng.choice([2, 3, 8])
    axis, cuts = rng.randint(0, len(shape)), [some_cuts(mesh, shape) for _ in range(count)]
    if rng.random() < 0.5:
        cuts = [cuts[0]] * count
    write("stack", name, axis, [shape] * count, cuts, lambda *xs: [jnp.stack(xs, axis)])


def split(name):
    shape = some_shape(rng.randint(1, 3))
    axis = rng.randrange(len(shape))
    size = shape[axis]
    if rng.random() < 0.5:
        at = rng.choice([n for n in range(1, 9) if size % n == 0])
        how = f"{axis}/{at}"
    else:
        at = sorted(rng.sample(range(1, size), rng.randint(1, 2)))
        how = f"{axis}@{','.join(map(str, at))}"
    write("split", name, how, [shape], [some_cuts(meshes[name], shape)], lambda x: jnp.split(x, at, axis))


def slice_of(name):
    shape = some_shape(rng.randint(1, 3))
    axis = rng.randrange(len(shape))
    start = rng.randrange(shape[axis])
    stop, step = rng.randint(start + 1, shape[axis]), rng.choice([1, 1, 1, 2, -1])
    index = [slice(None)] * len(shape)
    index[axis] = slice(start, stop, step) if step > 0 else slice(stop - 1, start - 1 if start > 0 else None, step)
    write("slice", name, f"{axis}@{start},{stop},{step}", [shape], [some_cuts(meshes[name], shape)],
          lambda x: [jax.jit(lambda y: y[tuple(index)])(x)])


def product(word):
    def make(name):
        inner, ndim = rng.choice([8, 16]), rng.randint(1, 3)
        a, b = some_shape(rng.randint(0, 2)) + [inner], some_shape(ndim)
        b[-2 if ndim > 1 else -1] = inner
        if word == "matmul" and len(a) == 3 and ndim == 3:
            b[0] = a[0] if rng.random() < 0.7 else 1
        cuts = [some_cuts(meshes[name], each) for each in (a, b)]
        write(word, name, "-", [a, b], cuts, lambda x, y: [getattr(jnp, word)(x, y)])
    return make


for make, count in [(concatenate, 200), (stack, 100), (split, 200), (slice_of, 120), (product("dot"), 240),
                    (product("matmul"), 240)]:
    for _ in range(count):
        make(rng.choice(list(meshes)))
