"""A player in JAX learns from moves that it remembers. Surprising moves are drawn more often: a tree of sums holds the surprise.

Cause: Python walks down the tree for each move that is drawn, and up for each that is updated. Remedy: NumPy takes one level of
the tree for all moves at once.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pairs import main

LEVELS, BATCH, SEEN, WIDTH, MOVES = 17, 512, 64, 512, 8
LEAVES = 1 << LEVELS
RATE = 1e-3


class Surprise:
    """Node 1 is the root of the tree; the children of node n are 2n and 2n + 1."""

    def __init__(self):
        self.sums = np.zeros(2 * LEAVES)
        self.sums[LEAVES:] = np.random.default_rng(1).random(LEAVES)
        for node in range(LEAVES - 1, 0, -1):
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]

    def find_leaf(self, mass):
        node = 1
        while node < LEAVES:
            node *= 2
            if mass > self.sums[node]:
                mass -= self.sums[node]
                node += 1
        return node - LEAVES

    def set_leaf(self, leaf, surprise):
        node = leaf + LEAVES
        change = surprise - self.sums[node]
        while node:
            self.sums[node] += change
            node //= 2

    def find_leaves(self, masses):
        nodes, masses = np.ones(len(masses), np.int64), masses.copy()
        for _ in range(LEVELS):
            nodes *= 2
            right = masses > self.sums[nodes]
            masses -= np.where(right, self.sums[nodes], 0)
            nodes += right
        return nodes - LEAVES

    def set_leaves(self, leaves, surprises):
        nodes = np.unique(leaves + LEAVES)
        self.sums[leaves + LEAVES] = surprises
        while nodes[0] > 1:
            nodes = np.unique(nodes // 2)
            self.sums[nodes] = self.sums[2 * nodes] + self.sums[2 * nodes + 1]


def values(layers, seen):
    for layer in layers[:-1]:
        seen = jax.nn.relu(seen @ layer["w"] + layer["b"])
    return seen @ layers[-1]["w"] + layers[-1]["b"]


def errors(layers, seen, moves, gains, later):
    best = jax.lax.stop_gradient(values(layers, later).max(1))
    return jnp.take_along_axis(values(layers, seen), moves[:, None], 1)[:, 0] - (gains + 0.99 * best)


@jax.jit
def learn(layers, memory, chosen):
    def loss(layers):
        missed = errors(layers, *(part[chosen] for part in memory))
        return (missed * missed).mean(), missed

    gradients, missed = jax.grad(loss, has_aux=True)(layers)
    return jax.tree.map(lambda weight, change: weight - RATE * change, layers, gradients), jnp.abs(missed)


def fresh(key):
    widths, layers = (SEEN, WIDTH, WIDTH, MOVES), []
    for inside, outside in zip(widths[:-1], widths[1:]):
        key, own = jax.random.split(key)
        layers.append({"w": jax.random.normal(own, (inside, outside)) * (2 / inside) ** 0.5, "b": jnp.zeros(outside)})
    return layers


def build(remedy):
    keys = jax.random.split(jax.random.key(1), 5)
    memory = (jax.random.normal(keys[0], (LEAVES, SEEN)), jax.random.randint(keys[1], (LEAVES,), 0, MOVES),
              jax.random.normal(keys[2], (LEAVES,)), jax.random.normal(keys[3], (LEAVES, SEEN)))
    surprise, draw, state = Surprise(), np.random.default_rng(2), {"layers": fresh(keys[4])}

    def step():
        masses = draw.random(BATCH) * surprise.sums[1]
        chosen = surprise.find_leaves(masses) if remedy else np.array([surprise.find_leaf(mass) for mass in masses])
        state["layers"], missed = learn(state["layers"], memory, chosen)
        missed = np.asarray(missed)
        if remedy:
            surprise.set_leaves(chosen, missed)
        else:
            for leaf, size in zip(chosen, missed):
                surprise.set_leaf(leaf, size)

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
