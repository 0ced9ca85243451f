"""What the bench has JAX compute, for compute_jax.py and gpu_jax.py: each function puts operands on `mesh`, of axes "a"
and "b", and returns a function that computes with them once.

Each is one compiled function; the gradient step's is all of the step, and gives its parameters' memory up."""
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P


def normal(mesh, key, size, cuts=(), scale=1.0):
    make = jax.jit(lambda: jax.random.normal(jax.random.key(key), size) * scale,
                   out_shardings=NamedSharding(mesh, P(*cuts)))
    return make().block_until_ready()


def sine(mesh, n):
    """Of n times n numbers."""
    x, run = normal(mesh, 0, (n, n), ("a", "b")), jax.jit(jnp.sin)
    return lambda: run(x)


def product(mesh, n):
    """Of two n times n matrices."""
    a, b = normal(mesh, 0, (n, n), ("a", None)), normal(mesh, 1, (n, n), (None, "b"))
    run = jax.jit(jnp.dot)
    return lambda: run(a, b)


def training(mesh, n, tensor):
    """A gradient step on n samples through three layers n wide; `tensor`: the middle ones are cut over "b"."""
    layers = [784, n, n, n, 10]
    cuts = {"W2": (None, "b"), "b2": ("b",), "W3": ("b", None)} if tensor else {}
    state = {}
    for k, (n_in, n_out) in enumerate(zip(layers, layers[1:]), 1):
        state[f"W{k}"] = normal(mesh, k, (n_in, n_out), cuts.get(f"W{k}", ()), n_in ** -0.5)
        state[f"b{k}"] = normal(mesh, 10 + k, (n_out,), cuts.get(f"b{k}", ()))
    inputs = normal(mesh, 20, (n, layers[0]), ("a", None))
    targets = normal(mesh, 21, (n, layers[-1]), ("a", None))

    def loss(params, inputs, targets):
        x = inputs
        for k in range(1, len(layers)):
            x = jnp.dot(x, params[f"W{k}"]) + params[f"b{k}"]
            if k < len(layers) - 1:
                x = jnp.maximum(x, 0)
        return jnp.mean(jnp.sum((x - targets) ** 2, 1))

    def train(params, inputs, targets):
        value, grads = jax.value_and_grad(loss)(params, inputs, targets)
        return value, jax.tree.map(lambda p, g: p - 1e-5 * g, params, grads)

    run = jax.jit(train, donate_argnums=0)

    def one():
        nonlocal state
        value, state = run(state, inputs, targets)
        return value, state

    return one
