"""Launches kernels in every way in which Python code can come to a launch, each with a grid of its own, and prints by grid the
frames that the interpreter itself sees there: lines of `GRID<tab>JSON`."""

import asyncio
import contextlib
import ctypes
import functools
import json
import sys
import threading
from ctypes import c_uint, c_void_p

driver = ctypes.CDLL("libcuda.so.1")
driver_with_gil = ctypes.PyDLL("libcuda.so.1")
for library in (driver, driver_with_gil):
    library.cuLaunchKernel.argtypes = [c_void_p] + [c_uint] * 7 + [c_void_p] * 3

grids = iter(range(1, 1 << 20))
expected = {}
function = c_void_p()


def begin():
    context, module = c_void_p(), c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert driver.cuModuleLoadData(ctypes.byref(module), b"kernel_5000") == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"kernel_5000") == 0
    return context


context = begin()


def frames(frame):
    while frame is not None:
        code = frame.f_code
        yield code.co_filename, getattr(code, "co_qualname", code.co_name), frame.f_lineno
        frame = frame.f_back


def note(grid):
    expected[grid] = list(frames(sys._getframe(1)))
    return grid


def launch(grid=None, of=driver):
    grid = next(grids) if grid is None else grid
    # The interpreter's own view and the launch are on one line.
    return of.cuLaunchKernel(function, note(grid), 1, 1, 32, 1, 1, 0, None, None, None)


def in_thread(work, name="worker"):
    def run():
        driver.cuCtxSetCurrent(context)
        work()

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()


# Plain calls, with and without the GIL; several lines of one function.
def train_step():
    launch()
    for _ in range(2):
        launch(
        )
    launch(of=driver_with_gil)


train_step()


# Methods, closures, lambdas, comprehensions.
class Model:
    class Inner:
        def forward(self):
            return launch()

    def __call__(self):
        return [self.Inner().forward() for _ in range(2)]

    @property
    def loss(self):
        return launch()

    @classmethod
    def make(cls):
        launch()
        return cls()


Model.make()()
Model().loss
(lambda: (lambda: launch())())()


# Decorators and context managers.
def decorated(inner):
    @functools.wraps(inner)
    def wrapper(*arguments, **keywords):
        return inner(*arguments, **keywords)

    return wrapper


@decorated
@decorated
def through_decorators():
    launch()


@contextlib.contextmanager
def managed():
    launch()
    yield
    launch()


through_decorators()
with managed():
    launch()


# Generators, coroutines.
def generate(depth):
    if depth:
        yield from generate(depth - 1)
    launch()
    yield depth


async def awaited():
    await asyncio.sleep(0)
    launch()


async def gathered():
    await asyncio.gather(awaited(), awaited())
    async for _ in produced():
        launch()


async def produced():
    launch()
    yield 1


list(generate(3))
asyncio.run(gathered())

# C code between Python frames.
sorted([2, 1], key=lambda _: launch())
functools.reduce(lambda _, __: launch(), [1, 2])
ctypes.CFUNCTYPE(None)(lambda: launch() and None)()
max(map(lambda _: launch(), [1]))


# Code without a file, code at the same address as other code, names in all scripts.
exec("def unfiled():\n\n    launch()\nunfiled()\nlaunch()")
eval("launch()")
for number in range(20):
    exec(compile("\n" * number + "launch()", f"<made {number}>", "exec"))
    exec(compile(f"def f{number}():\n launch()\nf{number}()", "<made>", "exec"))
exec(compile("def größe():\n launch()\ngröße()", "/tmp/größe.py", "exec"))
exec(compile("def 関数():\n launch()\n関数()", "/tmp/関数.py", "exec"))
exec(compile("def f():\n launch()\nf()", "/tmp/\N{SNAKE}.py", "exec"))
exec(compile("launch()\n" * 3 + "x = 1\n" * 9000 + "launch()", "<long>", "exec"))


# Recursion deeper than what is kept.
def recurse(depth):
    launch() if depth == 0 else recurse(depth - 1)


recurse(40)
recurse(300)


# Threads, exceptions, destructors, tracing.
in_thread(train_step)
in_thread(lambda: in_thread(launch))
try:
    launch()
    raise ValueError
except ValueError:
    launch()
finally:
    launch()


class Dying:
    def __del__(self):
        launch()


Dying()
sys.settrace(lambda *_: None)
launch()
sys.settrace(None)

for grid, stack in expected.items():
    print(f"{grid}\t{json.dumps(stack)}")
