"""The kernels of `apex_cuda.kernels` on CuPy's arrays, through DLPack: on streams of CuPy's, captured into graphs of CuPy's,
from several threads. Everything is compared with NumPy in float64. No kernel is launched but these.
"""

import ctypes
import threading

import cupy as cp
import numpy as np

from apex_cuda import kernels

generator = np.random.default_rng(7)
launches = 0
hopper = cp.cuda.Device().compute_capability == "90"
fastest = "hopper" if hopper else "flash"
"""The form of attention where rows are many."""


def random(*shape, dtype=np.float16):
    return generator.standard_normal(shape).astype(dtype)


def wait_for_copies():
    """Arrays are copied on the default stream, which a non-blocking stream does not wait for."""
    cp.cuda.get_current_stream().synchronize()


def wide(array):
    return cp.asnumpy(array).astype(np.float64)


def agree(found, right, tolerance=2e-3):
    distance = np.linalg.norm(found - right) / np.linalg.norm(right)
    assert distance < tolerance, distance


class Bfloat16:
    """A tensor of bfloat16, which NumPy has not: an array of 16-bit integers that says otherwise."""

    def __init__(self, values):
        bits = np.asarray(values, np.float32).view(np.uint32)
        self.bits = cp.asarray(((bits + 0x8000) >> 16).astype(np.uint16))

    def __dlpack_device__(self):
        return self.bits.__dlpack_device__()

    def __dlpack__(self, stream=None):
        capsule = self.bits.__dlpack__(stream=stream)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
        # The type's code stands behind the address, the device and the number of dimensions.
        ctypes.c_uint8.from_address(pointer(capsule, b"dltensor") + 20).value = 4
        return capsule

    def wide(self):
        return (cp.asnumpy(self.bits).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def shares(q, k, causal):
    """Weights of keys, heads of which have been repeated, and the log-sum-exps."""
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    queries, keys = scores.shape[2:]
    if causal:
        hidden = np.arange(keys) > np.arange(queries)[:, None] + keys - queries
        scores = np.where(hidden, -np.inf, scores)
    most = scores.max(3, keepdims=True)
    powers = np.exp(scores - most)
    sums = powers.sum(3, keepdims=True)
    return powers / sums, (most + np.log(sums))[..., 0]


def repeated(array, heads):
    return np.repeat(array, heads // array.shape[1], 1)


def attention(q, k, v, causal=False):
    weights, sums = shares(q, repeated(k, q.shape[1]), causal)
    return weights @ repeated(v, q.shape[1]), sums


def attention_gradients(q, k, v, given, causal):
    heads, key_heads = q.shape[1], k.shape[1]
    k, v = repeated(k, heads), repeated(v, heads)
    weights, _ = shares(q, k, causal)
    along = given @ v.swapaxes(2, 3)
    of_scores = weights * (along - (along * weights).sum(3, keepdims=True)) / np.sqrt(q.shape[3])
    of_k, of_v = of_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ given
    summed = [x.reshape(x.shape[0], key_heads, -1, *x.shape[2:]).sum(2) for x in (of_k, of_v)]
    return of_scores @ k, *summed


def forward_and_backward():
    global launches
    q, k, v = (cp.asarray(random(2, heads, rows, 64)) for heads, rows in [(4, 9), (2, 21), (2, 21)])
    out, sums = cp.empty_like(q), cp.empty(q.shape[:3], np.float32)
    given = cp.asarray(random(*q.shape))
    gradients = [cp.empty_like(x) for x in (q, k, v)]
    wait_for_copies()
    with cp.cuda.Stream(non_blocking=True) as stream:
        for causal in (False, True):
            assert kernels.attention_into(q, k, v, out, sums, causal=causal) == fastest
            form = kernels.attention_backward_into(q, k, v, out, sums, given, *gradients, causal=causal)
            assert form == fastest, form
            launches += 3 if fastest == "flash" else 4
            stream.synchronize()
            right, right_sums = attention(wide(q), wide(k), wide(v), causal)
            agree(wide(out), right)
            agree(wide(sums), right_sums)
            needed = attention_gradients(*(wide(x) for x in (q, k, v, given)), causal)
            for found, right in zip(gradients, needed):
                agree(wide(found), right)


def other_types_and_layouts():
    global launches
    values = [random(1, 5, 3, 128, dtype=np.float32) for _ in range(3)]
    q, k, v = (Bfloat16(x) for x in values)
    out, sums = Bfloat16(np.zeros_like(values[0])), cp.empty((1, 3, 5), np.float32)
    kernels.attention_into(q, k, v, out, sums, layout="bshd", stream=cp.cuda.get_current_stream())
    launches += 1
    q, k, v = (x.wide().swapaxes(1, 2) for x in (q, k, v))
    right, right_sums = attention(q, k, v)
    agree(out.wide().swapaxes(1, 2), right, 1e-2)
    agree(wide(sums), right_sums)


def norms():
    global launches
    x, residual = (cp.asarray(random(2, 3, 257)) for _ in range(2))
    weight, bias = (cp.asarray(random(257)) for _ in range(2))
    out, total = cp.empty_like(x), cp.empty_like(x)

    def normal(rows):
        return rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + 0.1)

    kernels.rms_norm_into(x, weight, out, epsilon=0.1)
    agree(wide(out), normal(wide(x)) * wide(weight))
    kernels.residual_rms_norm_into(x, residual, weight, total, out, epsilon=0.1)
    agree(wide(total), wide(x) + wide(residual))
    agree(wide(out), normal(wide(x) + wide(residual)) * wide(weight))
    kernels.residual_relu_layer_norm_into(x, residual, weight, bias, out, epsilon=0.1)
    rows = np.maximum(wide(x) + wide(residual), 0)
    agree(wide(out), normal(rows - rows.mean(-1, keepdims=True)) * wide(weight) + wide(bias))
    kernels.softmax_into(x, out)
    powers = np.exp(wide(x))
    agree(wide(out), powers / powers.sum(-1, keepdims=True))
    launches += 4


def captured():
    """The decode form needs memory between its two kernels: the program's, or that of the driver's pool."""
    global launches
    q = cp.asarray(random(1, 2, 1, 64))
    k, v = (cp.asarray(random(1, 1, 1500, 64)) for _ in range(2))
    out, sums = cp.empty_like(q), cp.empty(q.shape[:3], np.float32)
    needed = kernels.attention_workspace(q.shape, k.shape)
    wait_for_copies()
    for workspace in (cp.empty(needed, np.float32), None):
        with cp.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            form = kernels.attention_into(q, k, v, out, sums, workspace=workspace)
            graph = stream.end_capture()
            assert form == "decode", form
            for _ in range(2):  # the second time with other values
                q.set(random(*q.shape))
                graph.launch()
                launches += 2
                stream.synchronize()
                agree(wide(out), attention(wide(q), wide(k), wide(v))[0])


def threads():
    """Each on a stream of its own, the first calls of a shape at once."""
    global launches
    failures = []

    def work():
        try:
            x = cp.asarray(random(40, 130))
            wait_for_copies()
            with cp.cuda.Stream(non_blocking=True) as stream:
                out = cp.empty_like(x)
                for _ in range(3):
                    kernels.softmax_into(x, out)
                stream.synchronize()
            powers = np.exp(wide(x))
            agree(wide(out), powers / powers.sum(-1, keepdims=True))
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures
    launches += 12


def packed():
    """Two sequences one after another, each as it is alone."""
    global launches
    lengths, key_lengths = (3, 6), (5, 6)
    q = cp.asarray(random(9, 4, 64))
    k, v = (cp.asarray(random(11, 2, 64)) for _ in range(2))
    out, sums = cp.empty_like(q), cp.empty(9 * 4, np.float32)
    starts = cp.asarray([(0, 0), (3, 5), (9, 11)], np.int32)
    form = kernels.packed_attention_into(q, k, v, starts, out, sums, longest=(6, 6), causal=True)
    assert form == "flash", form
    launches += 1
    row = key = 0
    for queries, keys in zip(lengths, key_lengths):
        heads_first = [wide(x)[None, at : at + count].swapaxes(1, 2)
                       for x, at, count in [(q, row, queries), (k, key, keys), (v, key, keys)]]
        right, right_sums = attention(*heads_first, causal=True)
        agree(wide(out)[None, row : row + queries].swapaxes(1, 2), right)
        agree(wide(sums)[4 * row : 4 * (row + queries)].reshape(1, 4, queries), right_sums)
        row, key = row + queries, key + keys


def experts():
    """Each token is computed by the two experts of its largest logits."""
    global launches
    tokens, up, down = (cp.asarray(random(*shape)) for shape in [(9, 16), (3, 2, 8, 16), (3, 16, 8)])
    logits = cp.asarray(random(9, 3, dtype=np.float32))
    out, loads, drops = cp.empty_like(tokens), cp.empty(3, np.int32), cp.empty(2, np.int32)
    chosen, weights = cp.empty((9, 2), np.int32), cp.empty((9, 2), np.float32)
    routing = (chosen, weights, loads, drops)
    into = kernels.mixture_of_experts_into
    assert into(tokens, logits, up, down, out, *routing, top_k=2) == ("hopper" if hopper else "portable")
    launches += 6
    scores = np.exp(wide(logits))
    order = np.argsort(-scores, 1)[:, :2]
    assert (cp.asnumpy(chosen) == order).all()
    shares = np.take_along_axis(scores, order, 1)
    shares /= shares.sum(1, keepdims=True)
    agree(wide(weights), shares)
    assert (cp.asnumpy(loads) == np.bincount(order.ravel(), minlength=3)).all() and not cp.asnumpy(drops).any()
    right = np.zeros((9, 16))
    for token, (its, of) in enumerate(zip(order, shares)):
        for expert, share in zip(its, of):
            gate, value = wide(up)[expert] @ wide(tokens)[token]
            right[token] += share * (wide(down)[expert] @ (gate / (1 + np.exp(-gate)) * value))
    agree(wide(out), right, 5e-3)


def refused():
    """Nothing of this is launched."""
    q, out = cp.empty((1, 2, 3, 64), np.float16), cp.empty((1, 2, 3, 64), np.float16)
    sums = cp.empty((1, 2, 3), np.float32)
    row, long = cp.empty((4, 64), np.float16), cp.empty(4 * 64 + 1, np.float16)

    def says(text, call, *arguments, **options):
        try:
            call(*arguments, **options)
        except (TypeError, ValueError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)

    into = kernels.attention_into
    says("k is not contiguous", into, q, cp.empty((1, 2, 64, 3), np.float16).swapaxes(2, 3), q, out, sums)
    says("does not export DLPack", into, q, [1.0], q, out, sums)
    says("v is not on a CUDA device", into, q, q, np.empty((1, 2, 3, 64), np.float16), out, sums)
    says("q has elements that no kernel takes", into, cp.empty(q.shape, np.float64), q, q, out, sums)
    says("log_sum_exp has shape (1, 2, 4)", into, q, q, q, out, cp.empty((1, 2, 4), np.float32))
    says("elements of `log_sum_exp` must be float32", into, q, q, q, out, cp.empty((1, 2, 3), np.float16))
    says("`out` overlaps `q`", into, q, q, q, q, sums)
    if not hopper:
        says("the Hopper form does not run on", into, q, q, q, out, sums, form="hopper")
    says("it needs", into, q, q, q, out, sums, workspace=cp.empty(1, np.float32))
    says("stream is a str", into, q, q, q, out, sums, stream="stream")
    says("not a multiple of 16 bytes", kernels.softmax_into, long[1:].reshape(4, 64), row)
    other, weight = cp.empty((4, 64), np.float16), cp.empty(64, np.float16)
    says("epsilon is NaN", kernels.rms_norm_into, row, weight, other, epsilon=float("nan"))
    says("out has shape (3, 64)", kernels.softmax_into, row, row[:3])
    whole = cp.empty((2, 2), np.int32)
    lines = cp.empty((4, 1, 64), np.float16)
    packed_into = kernels.packed_attention_into
    says("log_sum_exp has shape (3,)", packed_into, lines, lines, lines, whole, lines, cp.empty(3, np.float32), longest=(4, 4))
    experts_into, logits = kernels.mixture_of_experts_into, cp.empty((4, 2), np.float32)
    weights = cp.empty((2, 2, 8, 64), np.float16), cp.empty((2, 64, 8), np.float16)
    says("top_k is 3", experts_into, row, logits, *weights, other, *4 * [whole], top_k=3)
    says("gate is 'relu'", experts_into, row, logits, *weights, other, cp.empty((4, 1), np.int32),
         cp.empty((4, 1), np.float32), cp.empty(2, np.int32), cp.empty(2, np.int32), top_k=1, gate="relu")


forward_and_backward()
other_types_and_layouts()
norms()
captured()
packed()
experts()
threads()
refused()
cp.cuda.Device().synchronize()
print(f"{launches} kernels launched")
