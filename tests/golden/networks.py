"""The losses of the networks of recipes/conv_net.lua and recipes/transformer.lua in JAX: writes networks.json, which
tests/training/networks_spec.lua reads.

Made with JAX 0.10.2 and optax 0.2.8 on a CPU:  JAX_PLATFORMS=cpu python3 networks.py > networks.json
"""
import json

import jax
import jax.numpy as jnp
import optax

STEPS, TOLD = 20, 5


def losses(optimizer, loss_of, params, *batch):
    step = jax.jit(jax.value_and_grad(loss_of))
    state, told = optimizer.init(params), {}
    for taken in range(STEPS + 1):
        loss, gradients = step(params, *batch)
        if taken % TOLD == 0:
            told[str(taken)] = float(loss)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    return told


def entropy(logits, labels):
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def conv_net():
    keys = jax.random.split(jax.random.key(0), 5)
    images = jax.random.normal(keys[0], (64, 16, 16, 1))
    labels = jax.random.randint(keys[1], (64,), 0, 10)
    params = {"k1": jax.random.normal(keys[2], (3, 3, 1, 8)) / 3,
              "k2": jax.random.normal(keys[3], (3, 3, 8, 16)) / 72 ** 0.5,
              "w": jax.random.normal(keys[4], (256, 10)) / 16, "b": jnp.zeros(10)}

    def layer(x, kernel):
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def loss_of(p, x, y):
        x = layer(layer(x, p["k1"]), p["k2"])
        return entropy(x.reshape(64, 256) @ p["w"] + p["b"], y)
    schedule = optax.cosine_decay_schedule(0.05, 30)
    return losses(optax.sgd(schedule, momentum=0.9), loss_of, params, images, labels)


def transformer():
    batch, places, words, width, heads, each, inner = 16, 16, 64, 32, 4, 8, 128
    keys = jax.random.split(jax.random.key(0), 4)
    first = jax.random.randint(keys[0], (batch, 1), 0, words)
    by = jax.random.randint(keys[1], (batch, 1), 1, 4)
    tokens = (first + by * jnp.arange(places + 1)) % words
    params = {"words": jax.random.normal(keys[2], (words, width)) * 0.1,
              "places": jax.random.normal(keys[3], (places, width)) * 0.1, "layers": []}
    for i in range(2):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(1), i), 6)
        shapes = {"q": (width, heads, each), "k": (width, heads, each), "v": (width, heads, each),
                  "out": (heads, each, width), "up": (width, inner), "down": (inner, width)}
        params["layers"].append(
            {name: jax.random.normal(key, shape) * (0.1 if name != "down" else 0.05)
             for key, (name, shape) in zip(keys, shapes.items())} | {"scale1": jnp.ones(width), "scale2": jnp.ones(width)})

    def normed(x, scale):
        return jax.nn.standardize(x, algorithm="stable") * scale

    def loss_of(p, tokens):
        x = p["words"][tokens[:, :-1]] + p["places"]
        for w in p["layers"]:
            y = normed(x, w["scale1"])
            q, k, v = (jnp.einsum("btd,dnh->btnh", y, w[name]) for name in "qkv")
            seen = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            x = x + jnp.einsum("btnh,nhd->btd", seen, w["out"])
            x = x + jax.nn.gelu(normed(x, w["scale2"]) @ w["up"]) @ w["down"]
        return entropy(normed(x, 1.0) @ p["words"].T, tokens[:, 1:])
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.01, 5, 30)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    return losses(optimizer, loss_of, params, tokens)


print(json.dumps({"conv_net": conv_net(), "transformer": transformer()}))
