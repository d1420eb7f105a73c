"""JAX: a jitted training step of a small network, a scan, and a sort; XLA launches kernels and its own graphs."""

import jax
import jax.numpy as jnp
from output import write


def predict(parameters, x):
    for weight, bias in parameters[:-1]:
        x = jax.nn.gelu(x @ weight + bias)
    weight, bias = parameters[-1]
    return x @ weight + bias


@jax.jit
def step(parameters, x, y):
    loss, gradients = jax.value_and_grad(lambda p: jnp.mean((predict(p, x) - y) ** 2))(parameters)
    return jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradients), loss


keys = jax.random.split(jax.random.key(5), 8)
sizes = (64, 128, 128, 8)
parameters = [(jax.random.normal(k, (m, n)) * 0.1, jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:])]
for i in range(60):
    key = jax.random.fold_in(keys[6], i)
    x = jax.random.normal(key, (256, 64))
    parameters, loss = step(parameters, x, jnp.sin(x[:, :8]))


@jax.jit
def recurrence(x):
    return jax.lax.scan(lambda carry, row: (jnp.tanh(carry + row), carry.sum()), x[0], x)


carry, sums = recurrence(jax.random.normal(keys[7], (100, 512)))
write(loss, carry, sums, jnp.sort(carry), *jax.tree.leaves(parameters))
