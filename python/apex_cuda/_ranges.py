"""Ranges: names for parts of the program, which ``apex report --by range`` sums up.

A range is NVTX's, in the default domain: ``torch.cuda.nvtx`` and the package ``nvtx`` give the
same. NVTX is a header, each copy of which hands the tables of its functions to the library that
takes its ranges. `_Nvtx` is such a copy, for ``libapex.so``; it needs no NVIDIA package.
"""

import builtins
import contextlib
import inspect
from typing import Any, Callable, Optional, TypeVar

from . import _library

_Function = TypeVar("_Function", bound=Callable[..., Any])

_CORE = 1
"""Module of NVTX that has push and pop (``NVTX_CB_MODULE_CORE``)."""
_PUSH, _POP, _COUNT = 9, 11, 16
"""Numbers of ``nvtxRangePushA`` and ``nvtxRangePop`` in it, and how many functions it has."""


class _Nvtx:
    """The functions that the library puts in place of NVTX's. Without the library they do
    nothing."""

    def __init__(self) -> None:
        self.push: Callable[[bytes], Any] = _nothing
        self.pop: Callable[[], Any] = _none
        library = _library.loaded()
        if library is not None:
            self._connect(library)

    def _connect(self, library: Any) -> None:
        import ctypes

        address = ctypes.c_void_p
        functions = (address * _COUNT)()
        place = ctypes.sizeof(address)
        places = (address * _COUNT)(
            *(ctypes.addressof(functions) + at * place for at in builtins.range(_COUNT))
        )

        def module_functions(module: int, table: Any, count: Any) -> int:
            if module != _CORE:
                return 0
            table[0], count[0] = ctypes.addressof(places), _COUNT
            return 1

        class Table(ctypes.Structure):
            _fields_ = [("bytes", ctypes.c_size_t), ("functions", address)]

        unsigned = ctypes.POINTER(ctypes.c_uint)
        gives_functions = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_int, ctypes.POINTER(address), unsigned
        )(module_functions)
        table = Table(ctypes.sizeof(Table), ctypes.cast(gives_functions, address))

        def export_table(identifier: int) -> Optional[int]:
            return ctypes.addressof(table) if identifier == 1 else None

        gives_table = ctypes.CFUNCTYPE(address, ctypes.c_uint32)(export_table)
        initialize = library.InitializeInjectionNvtx2
        initialize.argtypes, initialize.restype = [address], ctypes.c_int
        initialized = initialize(ctypes.cast(gives_table, address))
        push, pop = functions[_PUSH], functions[_POP]
        if initialized == 1 and push is not None and pop is not None:
            # Neither waits for anything, so the interpreter's lock is kept.
            self.push = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(push)
            self.pop = ctypes.PYFUNCTYPE(ctypes.c_int)(pop)


def _nothing(_name: bytes) -> None:
    """Takes the place of push."""


def _none() -> None:
    """Takes the place of pop."""


class range(contextlib.ContextDecorator):  # (NVTX's word for it)
    """Names what happens inside: ``with apex_cuda.range("forward"):``, or
    ``@apex_cuda.range("forward")``.

    Ranges of a thread nest. Where the program does not run under ``apex run``, nothing happens. A
    range belongs to the thread: do not ``await`` or ``yield`` inside.

    Args:
        name: its name; ``apex`` keeps the first 192 bytes of it in UTF-8.
    """

    __slots__ = ("_name", "_pop", "_push")

    def __init__(self, name: str) -> None:
        nvtx = _nvtx()
        self._name = name.encode(errors="replace")
        self._push, self._pop = nvtx.push, nvtx.pop

    def __enter__(self) -> "range":
        self._push(self._name)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._pop()

    def __call__(self, function: _Function) -> _Function:
        """Decorates a function: each call of it is in the range.

        Raises:
            TypeError: it is a generator or a coroutine function, whose body runs after the call.
        """
        if (
            inspect.isgeneratorfunction(function)
            or inspect.iscoroutinefunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise TypeError(
                f"apex_cuda.range cannot decorate {function.__qualname__}, whose body runs after "
                "the call: write `with apex_cuda.range(…)` inside of it"
            )
        return super().__call__(function)


_connected: Optional[_Nvtx] = None


def _nvtx() -> _Nvtx:
    global _connected
    if _connected is None:
        _connected = _Nvtx()
    return _connected
