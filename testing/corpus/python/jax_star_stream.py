"""Eight million stars of a stream move around a galaxy. The few that come close to its centre need two hundred small steps.

Cause: under vmap, lax.cond computes both branches for each star. Remedy: the small steps are taken by those that need them.
"""

import jax
import jax.numpy as jnp

from pairs import main

STARS, ROOM, NEAR, SMALL_STEPS, TIME, SOFT = 1 << 23, 1 << 17, 0.05, 200, 0.001, 1e-3


def moved(star, time):
    x, y, u, v = star
    pull = (x * x + y * y + SOFT) ** -1.5
    u, v = u - time * pull * x, v - time * pull * y
    return x + time * u, y + time * v, u, v


def refined(star):
    return jax.lax.fori_loop(0, SMALL_STEPS, lambda _, star: moved(star, TIME / SMALL_STEPS), star)


def coarse(star):
    return moved(star, TIME)


def is_near(star):
    return jnp.hypot(star[0], star[1]) < NEAR


@jax.jit
def advance(stars):
    return jax.vmap(lambda star: jax.lax.cond(is_near(star), refined, coarse, star))(stars)


@jax.jit
def advance_few(stars):
    (few,) = jnp.nonzero(is_near(stars), size=ROOM, fill_value=STARS)
    new = refined(tuple(part[few] for part in stars))
    return tuple(part.at[few].set(change, mode="drop") for part, change in zip(coarse(stars), new))


def build(remedy):
    angle, far = jax.random.uniform(jax.random.key(1), (2, STARS))
    angle, far = angle * 2 * jnp.pi, 0.04 + far
    speed = far * (far**2 + SOFT) ** -0.75
    stars = (far * jnp.cos(angle), far * jnp.sin(angle), -speed * jnp.sin(angle), speed * jnp.cos(angle))
    state = {"stars": stars}
    method = advance_few if remedy else advance

    def step():
        state["stars"] = method(state["stars"])

    return step


if __name__ == "__main__":
    main(build, lambda: jax.block_until_ready(jnp.zeros(()) + 0))
