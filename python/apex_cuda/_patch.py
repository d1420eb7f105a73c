"""`patch`: replaces a model's attention, norms and softmax by `apex_cuda.kernels`, call by call.

"Ours" below means: computed by a kernel of `apex_cuda.kernels`.

A patched module gets a subclass of its class, whose ``forward`` decides at each call: it is ours if
the kernels support the call and `_choice` says that they are at least as fast, otherwise the
module's own ``forward`` runs. The account keeps each decision and its reason. Parameters, hooks and
names stay as they are; copies and pickles of a module have the original class. While
``torch.compile`` traces, nothing is ours.

`torch.nn.functional.scaled_dot_product_attention` is replaced while any model is patched, but only
acts in modules of patched models: these record that they run (`_scope`, `_Inside`), so that a block
which activation checkpointing calls again decides as it did before.
"""

import copyreg
import functools
import sys
import threading
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
from torch import Tensor, nn

from . import _choice, _measured

_TYPES = (torch.bfloat16, torch.float16)
_COPIED = "its tensors would be copied, because they are not contiguous"

_Reason = Optional[str]

_MEASURED = {"attention": "attention", "RMSNorm": "rms_norm", "softmax": "softmax"}
"""The measurements that decide about each kind of calls."""


@dataclass
class Entry:
    """The decision about calls of one kind.

    Attributes:
        kind: ``attention``, ``RMSNorm``, ``LayerNorm`` or ``softmax``.
        what: type, shapes and whether gradients are wanted; empty for modules that are never ours.
        reason: why the calls are not ours; None if they are.
        modules: names of the modules.
        calls: number of calls.
    """

    kind: str
    what: str
    reason: _Reason
    modules: set[str]
    calls: int = 0

    def __str__(self) -> str:
        some = sorted(self.modules)
        where = f"{some[0] or 'the model'}" + (f" and {len(some) - 1} more" if some[1:] else "")
        calls = f"{self.calls} call{'s' if self.calls != 1 else ''}, " if self.what else ""
        text = f"{self.kind} {self.what}".strip()
        return f"{text}: {calls}{where}" + (f"; {self.reason}" if self.reason else "")


class Patch:
    """A patched model, with an account of which calls run on APEX's kernels. The end of a ``with``
    block, or `remove`, restores the model."""

    def __init__(self, model: nn.Module, unmeasured: bool) -> None:
        self.model = model
        self.unmeasured = unmeasured
        self._decided: dict[Any, Entry] = {}
        self._entries: dict[tuple[str, str, _Reason], Entry] = {}
        self._small: dict[Any, Entry] = {}
        self._least = {kind: _choice.least_elements(of) for kind, of in _MEASURED.items()}
        self._patched: list[nn.Module] = []

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.remove()

    def remove(self) -> None:
        """Restores the model. A second call has no effect."""
        for module in self._patched:
            _restore(module)
        if self._patched:
            _Attention.leave(self)
        self._patched = []

    @property
    def replaced(self) -> list[Entry]:
        """The calls that have run on APEX's kernels so far."""
        return [entry for entry in self._entries.values() if entry.reason is None]

    @property
    def left(self) -> list[Entry]:
        """The modules and calls that have not, each with the reason."""
        return [entry for entry in self._entries.values() if entry.reason is not None]

    def __str__(self) -> str:
        """The account, as text."""
        parts = [("replaced", self.replaced), ("left alone", self.left)]
        lines = []
        for title, entries in parts:
            lines.append(f"{title}:" if entries else f"{title}: nothing so far")
            lines += [f"  {entry}" for entry in entries]
        return "\n".join(lines)

    __repr__ = __str__

    def _is_small(self, kind: str, module: Any, x: Any) -> bool:
        """Whether a call is too small to be ours in any case. Programs of many small calls wait for
        the host, so this check must take little host time."""
        if self.unmeasured or not _is_on_gpu(x) or x.numel() >= self._least[kind]:
            return False
        name = module._apex_name
        entry = self._small.get((kind, name))
        if entry is None:
            what = f"of fewer than {self._least[kind]:,} elements"
            reason = "too small: the host takes longer for a call than the GPU"
            entry = self._small[kind, name] = self._entry(kind, what, reason, name)
        entry.calls += 1
        return True

    def _is_ours(
        self, kind: str, module: str, key: Any, decide: Callable[[], tuple[str, _Reason]]
    ) -> bool:
        """Decides about a call, once for each key, and counts it."""
        key = (kind, module, key)
        entry = self._decided.get(key)
        if entry is None:
            what, reason = decide()
            entry = self._decided[key] = self._entry(kind, what, reason, module)
        entry.calls += 1
        return entry.reason is None

    def _entry(self, kind: str, what: str, reason: _Reason, module: str) -> Entry:
        entry = self._entries.setdefault(
            (kind, what, reason), Entry(kind, what, reason, modules=set())
        )
        entry.modules.add(module)
        return entry


def patch(model: nn.Module, *, unmeasured: bool = False) -> Patch:
    """Replaces a model's attention, RMSNorm and softmax modules by kernels of `apex_cuda.kernels`,
    in each call that these support and for which they were measured to be at least as fast.

    Args:
        model: the model, which is changed in place.
        unmeasured: use the kernels wherever they support the call, also if they were not measured
            or were slower.

    Returns:
        The account, which can be printed at any time.

    Raises:
        ValueError: the model, or a part of it, is already patched.
    """
    found = Patch(model, unmeasured)
    named = list(model.named_modules())
    if any(_original(module) is not None for _, module in named):
        raise ValueError("the model is already patched; apex_cuda.unpatch(model) restores it")
    for name, module in named:
        _patch_module(found, name, module)
    _Attention.enter(found)
    return found


def unpatch(model: nn.Module) -> None:
    """Restores a model that `patch` changed. A model that is not patched stays as it is."""
    patches = {id(one): one for one in map(_patch_of, model.modules()) if one is not None}
    for one in patches.values():
        one.remove()


def _patch_of(module: nn.Module) -> Optional[Patch]:
    found: Optional[Patch] = module.__dict__.get("_apex_patch")
    return found


def _patch_module(patch: Patch, name: str, module: nn.Module) -> None:
    """Gives a module its subclass, or records why it keeps its class."""
    if isinstance(module, torch.jit.ScriptModule):
        return
    kind = _kind(module)
    if kind is None:
        of: Any = type(module)
        if module is patch.model or _has_scope(module):
            _exchange(patch, name, module, _scope(of))
        return
    reason = _never(kind, module)
    if reason is not None:
        patch._entry(kind, "", reason, name)
    else:
        _exchange(patch, name, module, _FORWARDS[kind](type(module)))


def _exchange(patch: Patch, name: str, module: nn.Module, to: type) -> None:
    module.__dict__["_apex_patch"], module.__dict__["_apex_name"] = patch, name
    module.__class__ = to
    patch._patched.append(module)


def _restore(module: nn.Module) -> None:
    original = _original(module)
    if original is not None:
        module.__class__ = original
    for name in ("_apex_patch", "_apex_name"):
        module.__dict__.pop(name, None)


def _original(module: nn.Module) -> Optional[type]:
    found: Optional[type] = type(module).__dict__.get("_apex_original")
    return found


# Kinds of modules.


def _kind(module: nn.Module) -> Optional[str]:
    """What a module computes, if there is a kernel for it or users may expect one."""
    if isinstance(module, nn.RMSNorm) or _is_llama_norm(module):
        return "RMSNorm"
    if isinstance(module, nn.LayerNorm):
        return "LayerNorm"
    return "softmax" if isinstance(module, nn.Softmax) else None


def _is_llama_norm(module: nn.Module) -> bool:
    """Whether a module's ``forward`` has the same bytecode as transformers' ``LlamaRMSNorm``."""
    llama: Any = sys.modules.get("transformers.models.llama.modeling_llama")
    known = getattr(getattr(llama, "LlamaRMSNorm", None), "forward", None)
    code = getattr(type(module).forward, "__code__", None)
    if known is None or code is None or not hasattr(known, "__code__"):
        return False
    members = ("co_code", "co_names", "co_varnames")
    return all(getattr(code, name) == getattr(known.__code__, name) for name in members)


def _never(kind: str, module: nn.Module) -> _Reason:
    """Why no call of a module can be ours."""
    if "forward" in module.__dict__:
        return "its forward is exchanged on the instance"
    if kind == "LayerNorm":
        return "there is no kernel for it without a residual and a ReLU"
    if kind == "softmax":
        return None
    if type(module).forward is nn.RMSNorm.forward:
        if len(module.normalized_shape) != 1:
            return "it normalises more than one dimension"
        if module.eps is None:
            return "it has no epsilon: PyTorch's choice is not the documented one; give it one"
    elif isinstance(module, nn.RMSNorm):
        return "its class has a forward of its own"
    return "it has no weight" if getattr(module, "weight", None) is None else None


def _has_scope(module: nn.Module) -> bool:
    """Whether a module may call attention: classes outside of PyTorch, and its own attention."""
    own = not type(module).__module__.startswith("torch.nn.")
    return own or isinstance(module, nn.MultiheadAttention)


# Subclasses.


class _Restored:
    """Base of all subclasses: copies and pickles have the original class."""

    _apex_original: type

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(protocol)
        function, arguments, *rest = reduced
        if arguments == (type(self),):
            # pickle refuses `copyreg.__newobj__` with another class than the object's.
            function, arguments = copyreg._reconstructor, (self._apex_original, object, None)  # type: ignore[attr-defined]
        if rest and isinstance(rest[0], dict):
            kept = {key: of for key, of in rest[0].items() if key not in _OURS}
            rest = [kept, *rest[1:]]
        return (function, arguments, *rest)


_OURS = ("_apex_patch", "_apex_name")


def _subclass(of: type, forward: Callable[..., Any]) -> type:
    names = {name: getattr(of, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(of.__name__, (_Restored, of), {**names, "forward": forward, "_apex_original": of})


@functools.lru_cache(maxsize=None)
def _scope(of: Any) -> type:
    """A subclass whose ``forward`` records that a module of a patched model runs."""

    @functools.wraps(of.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return of.forward(self, *args, **kwargs)
        with _Inside(self):
            return of.forward(self, *args, **kwargs)

    return _subclass(of, forward)


@functools.lru_cache(maxsize=None)
def _rms_norm(of: Any) -> type:
    @functools.wraps(of.forward)
    def forward(self: Any, x: Any) -> Any:
        patch = _patch_now(self)
        if patch is None or patch._is_small("RMSNorm", self, x):
            return of.forward(self, x)
        weight = self.weight
        decide = lambda: _of_rows(patch, "rms_norm", x, weight)
        if not patch._is_ours("RMSNorm", self._apex_name, _key(x, weight), decide):
            return of.forward(self, x)
        epsilon = self.eps if isinstance(self, nn.RMSNorm) else self.variance_epsilon
        return _kernels().rms_norm(x, weight, epsilon=epsilon)

    return _subclass(of, forward)


@functools.lru_cache(maxsize=None)
def _softmax(of: Any) -> type:
    @functools.wraps(of.forward)
    def forward(self: Any, x: Any) -> Any:
        patch = _patch_now(self)
        if patch is None or patch._is_small("softmax", self, x):
            return of.forward(self, x)
        decide = lambda: _of_softmax(patch, self.dim, x)
        if not patch._is_ours("softmax", self._apex_name, _key(x), decide):
            return of.forward(self, x)
        return _kernels().softmax(x)

    return _subclass(of, forward)


def _patch_now(module: Any) -> Optional[Patch]:
    """The patch that decides about a call of a module: none while ``torch.compile`` traces."""
    return None if torch.compiler.is_compiling() else _patch_of(module)


_FORWARDS: dict[str, Callable[[Any], type]] = {"RMSNorm": _rms_norm, "softmax": _softmax}


def _kernels() -> Any:
    from . import kernels

    return kernels


# Decisions.


def _is_on_gpu(x: Any) -> bool:
    return type(x) is Tensor and x.is_cuda


def _key(*tensors: Any) -> Any:
    """The state and the tensors' properties on which a decision depends."""
    state = (
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cuda"),
        torch._C._are_functorch_transforms_active(),
        torch.are_deterministic_algorithms_enabled(),
    )
    return state, tuple(_of_tensor(x) for x in tensors)


def _of_tensor(x: Any) -> Any:
    if type(x) is not Tensor and type(x) is not nn.Parameter:
        return type(x)
    return x.shape, x.dtype, x.device, x.stride(), x.requires_grad


def _gradients(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _described(x: Any, gradients: bool, more: str = "") -> str:
    if not isinstance(x, Tensor):
        return f"of {type(x).__name__}"
    dtype = str(x.dtype).replace("torch.", "")
    return f"{dtype} {list(x.shape)}{more}" + (", with gradients" if gradients else "")


def _unsupported(patch: Patch, *tensors: Any) -> _Reason:
    """Why no kernel of ours takes these tensors."""
    if any(type(x) is not Tensor and type(x) is not nn.Parameter for x in tensors):
        return "its tensors are of a class of their own"
    first = tensors[0]
    if any(x.device != first.device for x in tensors) or not first.is_cuda:
        return f"its tensors are on {first.device}, and kernels need a GPU"
    if any(x.dtype != first.dtype for x in tensors):
        return "its tensors are of different types"
    if torch._C._are_functorch_transforms_active():
        return "a transform of torch.func is active"
    if first.numel() == 0:
        return "it has no elements"
    return _untabled(first) if not patch.unmeasured else _unkerneled(first)


def _unkerneled(x: Tensor) -> _Reason:
    if torch.cuda.get_device_capability(x.device) < (8, 0):
        return "kernels need compute capability 8.0"
    return None if x.dtype in _TYPES else f"there is no kernel for {x.dtype}"


def _untabled(x: Tensor) -> _Reason:
    """Why nothing was measured of such tensors."""
    name = torch.cuda.get_device_name(x.device)
    if name != _measured.DEVICE:
        return f"nothing was measured on {name}, only on {_measured.DEVICE}"
    return None if x.dtype is torch.bfloat16 else f"nothing was measured in {x.dtype}"


def _of_rows(patch: Patch, kind: str, x: Tensor, *vectors: Tensor) -> tuple[str, _Reason]:
    """A norm or softmax along the last dimension: its description, and why it is not ours."""
    gradients = isinstance(x, Tensor) and _gradients(x, *vectors)
    what = _described(x, gradients)
    reason = _unsupported(patch, x, *vectors)
    if reason is None and torch.is_autocast_enabled("cuda"):
        reason = "autocast chooses its type"
    if reason is None and not x.is_contiguous():
        reason = _COPIED
    if reason is None and not patch.unmeasured:
        reason = _choice.of_rows(kind, x.shape[-1], x.numel(), gradients)
    return what, reason


def _of_softmax(patch: Patch, dim: Any, x: Tensor) -> tuple[str, _Reason]:
    what, reason = _of_rows(patch, "softmax", x)
    if isinstance(x, Tensor) and dim not in (-1, x.dim() - 1):
        reason = "it is not along the last dimension"
    return what, reason


# Attention.


class _Inside:
    """Records that a module of a patched model runs in this thread."""

    __slots__ = ("before", "module")
    state = threading.local()

    def __init__(self, module: Any) -> None:
        self.module = module

    def __enter__(self) -> None:
        self.before = getattr(self.state, "module", None)
        self.state.module = self.module

    def __exit__(self, *_exception: Any) -> None:
        self.state.module = self.before


class _Attention:
    """Replaces PyTorch's function, in its own module and in the modules of the models."""

    name = "scaled_dot_product_attention"
    original: Any = nn.functional.scaled_dot_product_attention
    lock = threading.Lock()
    patches: dict[int, list[dict[str, Any]]] = {}
    """By patch: the namespaces that may contain the function."""

    @classmethod
    def enter(cls, patch: Patch) -> None:
        names = {_original_or_type(module).__module__ for module in patch.model.modules()}
        spaces = [vars(sys.modules[name]) for name in sorted(names) if name in sys.modules]
        with cls.lock:
            cls.patches[id(patch)] = [vars(nn.functional), *spaces]
            cls._exchange(cls.patches[id(patch)], cls.original, _attention)

    @classmethod
    def leave(cls, patch: Patch) -> None:
        with cls.lock:
            spaces = cls.patches.pop(id(patch), [])
            kept = {id(space) for others in cls.patches.values() for space in others}
            gone = [space for space in spaces if id(space) not in kept]
            cls._exchange(gone, _attention, cls.original)

    @staticmethod
    def _exchange(spaces: list[dict[str, Any]], old: Any, new: Any) -> None:
        for space in spaces:
            for name in [name for name, value in list(space.items()) if value is old]:
                space[name] = new


def _original_or_type(module: nn.Module) -> type:
    return _original(module) or type(module)


@functools.wraps(_Attention.original)
def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **more: Any,
) -> Any:
    """PyTorch's function, or ours in a patched model."""
    module = None if torch.compiler.is_compiling() else getattr(_Inside.state, "module", None)
    patch = None if module is None else _patch_of(module)
    if module is None or patch is None or patch._is_small("attention", module, query):
        return _Attention.original(query, key, value, attn_mask, dropout_p, is_causal, **more)
    call = _Call(query, key, value, attn_mask is not None, dropout_p, is_causal, more)
    if patch._is_ours("attention", module._apex_name, call.key(), lambda: call.decide(patch)):
        attention = _kernels().attention
        return attention(query, key, value, causal=is_causal, scale=more.get("scale"))
    return _Attention.original(query, key, value, attn_mask, dropout_p, is_causal, **more)


@dataclass
class _Call:
    """A call of attention."""

    q: Any
    k: Any
    v: Any
    masked: bool
    dropout: float
    causal: bool
    more: dict[str, Any]

    def key(self) -> Any:
        return (
            _key(self.q, self.k, self.v),
            (self.masked, self.dropout > 0, self.causal, self._grouped()),
            _chosen(),
        )

    def _grouped(self) -> bool:
        return bool(self.more.get("enable_gqa", False))

    def decide(self, patch: Patch) -> tuple[str, _Reason]:
        """Its description, and why it is not ours."""
        q, k, v = self.q, self.k, self.v
        gradients = all(isinstance(x, Tensor) for x in (q, k, v)) and _gradients(q, k, v)
        what = _described(q, gradients, ", causal" if self.causal else "")
        reason = _unsupported(patch, q, k, v) or self._other_function() or self._other_shapes()
        if reason is None and gradients and torch.are_deterministic_algorithms_enabled():
            reason = "deterministic algorithms are wanted, and ours adds gradients in any order"
        if reason is None and not patch.unmeasured:
            reason = self._slower(gradients)
        return what, reason

    def _other_function(self) -> _Reason:
        if self.masked:
            return "it has a mask"
        if self.dropout > 0:
            return "it has dropout"
        return None if _chosen() else "the program chooses among PyTorch's backends"

    def _other_shapes(self) -> _Reason:
        q, k, v = self.q, self.k, self.v
        if any(x.dim() != 4 for x in (q, k, v)):
            return "its tensors do not have four dimensions"
        if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
            return "its keys and values, or batches, differ in shape"
        if q.shape[3] not in (64, 128, 256):
            return f"heads of {q.shape[3]}: there are kernels for 64, 128 and 256"
        if self.causal and q.shape[2] != k.shape[2]:
            return "its mask ends elsewhere: PyTorch aligns the first query with the first key"
        grouped = q.shape[1] != k.shape[1]
        if grouped and not (self._grouped() and q.shape[1] % k.shape[1] == 0):
            return "its heads of keys are not those of its queries"
        rows_first = all(x.transpose(1, 2).is_contiguous() for x in (q, k, v))
        return None if rows_first or all(x.is_contiguous() for x in (q, k, v)) else _COPIED

    def _slower(self, gradients: bool) -> _Reason:
        q, k = self.q, self.k
        if q.shape[1] != k.shape[1]:
            return "nothing was measured with shared heads of keys"
        if q.shape[2] != k.shape[2]:
            return "nothing was measured with other numbers of queries than of keys"
        return _choice.of_attention(q.shape[3], self.causal, q.shape[2], q.numel(), gradients)


def _chosen() -> bool:
    """Whether PyTorch may choose among its backends: the program has not restricted them."""
    backends = torch.backends.cuda
    return bool(
        backends.flash_sdp_enabled()
        and backends.mem_efficient_sdp_enabled()
        and backends.math_sdp_enabled()
    )
