"""Launches while the interpreter is in a state in which its frames are hard to read. Every launch has a new configuration, so
that the recorder looks at the stack of each. `states.py STATE [ARGUMENTS]`"""

import atexit
import ctypes
import itertools
import os
import random
import signal
import sys
import threading
import time
from ctypes import c_uint, c_void_p

driver = ctypes.CDLL("libcuda.so.1")
driver.cuLaunchKernel.argtypes = [c_void_p] + [c_uint] * 7 + [c_void_p] * 3
context, module, function = c_void_p(), c_void_p(), c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert driver.cuModuleLoadData(ctypes.byref(module), b"kernel_5000") == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"kernel_5000") == 0
grids = itertools.count(1)
# Set once a thread has launched: what follows does not depend on how soon it does.
launched = threading.Event()


def launch(grid=None):
    driver.cuLaunchKernel(function, grid or next(grids), 1, 1, 32, 1, 1, 0, None, None, None)


def launch_for_ever(depth=0):
    driver.cuCtxSetCurrent(context)
    if depth < 30:
        launch_for_ever(depth + 1)
    launch()
    launched.set()
    while True:
        launch()


def daemons():
    """The interpreter ends while other threads launch, with and without the GIL."""
    for _ in range(4):
        threading.Thread(target=launch_for_ever, daemon=True).start()
    launched.wait()
    time.sleep(random.random() * 0.05)


def signals():
    """Handlers launch in the middle of launches."""

    def handle(*_):
        launch()
        signal.setitimer(signal.ITIMER_REAL, 0.001 * random.random() + 0.0001)

    launch()
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        launch()
    signal.signal(signal.SIGALRM, signal.SIG_IGN)


def exits():
    """Launches at the end, in the order of what is torn down."""

    class Dying:
        def __del__(self):
            launch()

    globals()["kept"] = [Dying(), Dying()]
    atexit.register(launch)
    sys.modules["dying"] = Dying()
    raise SystemExit(0)


def at_once():
    """A thread ends the process while others launch."""
    daemons()
    threading.Thread(target=os._exit, args=(0,)).start()
    launch_for_ever()


def forks():
    """Children launch, while other threads of the parent do."""
    threading.Thread(target=launch_for_ever, daemon=True).start()
    launched.wait()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            launch()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def interpreters():
    """Code of sub-interpreters launches."""
    here = os.path.abspath(__file__)
    code = f"""
import sys
sys.argv = [{here!r}, 'nothing']
exec(compile(open({here!r}).read(), {here!r}, 'exec'))
launch()
"""
    try:
        import _interpreters as sub
    except ImportError:
        import _xxsubinterpreters as sub
    for _ in range(3):
        try:
            one = sub.create("legacy")
        except (TypeError, ValueError):
            one = sub.create(isolated=False)
        try:
            sub.run_string(one, code)
        except Exception as error:
            print(f"not run: {error}")
        launch()
        sub.destroy(one)


def foreign(library):
    """Threads that the interpreter does not know, and the end of the process after the interpreter's."""
    launcher = ctypes.CDLL(library)
    launcher.use(context, function)
    callback = ctypes.CFUNCTYPE(None)
    launcher.launch_in_thread(b"pt_autograd_0", 1000, ctypes.cast(None, callback))
    launcher.launch_in_thread(b"a_worker", 1001, callback(lambda: launch(1003)))
    launcher.launch_at_end(1004)


def sampled():
    """One configuration, launched from two lines."""
    for _ in range(100000):
        launch(7)
        launch(7)


def nothing():
    pass


globals()[sys.argv[1]](*sys.argv[2:])
