"""PyTorch's operators of `apex_cuda.kernels`: how they are registered, their shapes, their
gradients, under `torch.compile` too. The C interface is replaced by float64 arithmetic on the CPU;
`scripts/gpu/python_kernels.py` has the kernels compute."""

import math
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

try:
    import torch
except ImportError:
    torch = None


def scores(q, k, options, scale):
    """Scaled scores of heads-first tensors, with minus infinity where nothing is seen."""
    _, mask, left, right, _ = options
    queries, keys = q.shape[2], k.shape[2]
    place = torch.arange(queries)[:, None] + keys - queries
    key = torch.arange(keys)[None]
    sees = torch.ones(queries, keys, dtype=torch.bool)
    if mask == 1 or (mask == 2 and right >= 0):
        sees &= key <= place + (right if mask == 2 else 0)
    if mask == 2 and left >= 0:
        sees &= key >= place - left
    return (scale * q @ k.transpose(2, 3)).masked_fill(~sees, -math.inf)


def attention(q, k, v, options, scale):
    """Attention and log-sum-exps in float64."""
    q, k, v = (x.double().transpose(1, 2) if options[0] else x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    sums = torch.logsumexp(scores(q, k, options, scale), -1)
    out = torch.exp(scores(q, k, options, scale) - sums[..., None]).nan_to_num() @ v
    return (out.transpose(1, 2) if options[0] else out), sums


def norm(x, weight, epsilon):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def layer_norm(x, residual, weight, bias, epsilon):
    rows = torch.relu(x + residual)
    return torch.nn.functional.layer_norm(rows, rows.shape[-1:], weight, bias, epsilon)


def packed(q, k, v, starts, options, scale):
    """Attention of each sequence, and its log-sum-exps, one after another."""
    outs, sums = [], []
    for (row, key), (row_end, key_end) in zip(starts.tolist(), starts.tolist()[1:]):
        given = (q[None, row:row_end], k[None, key:key_end], v[None, key:key_end])
        out, its_sums = attention(*given, [*options[:4], 0], scale)
        outs.append(out[0])
        sums.append(its_sums.flatten())
    return torch.cat(outs), torch.cat(sums)


def experts(tokens, up, down, logits, top_k, gate=0, renormalise=1):
    """A mixture of experts in float64: the output, and what tokens choose, with its weights."""
    tokens, up, down, logits = (x.double() for x in (tokens, up, down, logits))
    chosen = logits.topk(top_k).indices
    scores = torch.sigmoid(logits) if gate else torch.softmax(logits, -1)
    weights = scores.gather(1, chosen)
    weights = weights / weights.sum(-1, keepdim=True) if renormalise else weights
    gates, values = torch.einsum("tkjhd,td->jtkh", up[chosen], tokens)
    rows = torch.einsum("tkdh,tkh->tkd", down[chosen], torch.nn.functional.silu(gates) * values)
    return (weights[..., None] * rows).sum(1), chosen, weights


OTHER_TYPES = {}
"""Types of outputs, by operation and place, that are not the first input's, as the C interface has
them."""
if torch is not None:
    OTHER_TYPES |= {
        ("attention_forward", 1): torch.float32,
        ("attention_sequences_forward", 1): torch.float32,
        ("experts_forward", 2): torch.float32,
        ("experts_backward", 3): torch.float32,
        **{("experts_forward", place): torch.int32 for place in (1, 3, 4, 5)},
    }


class Reference:
    """What takes the place of the C interface: writes what the kernels would write."""

    def __init__(self):
        self.calls = []
        self.saves = True  # whether a forward pass of experts has memory for a backward pass

    def __call__(self, operation, inputs, outputs, integers, numbers, has_workspace=False):
        self.calls.append(operation)
        for tensor in [*inputs, *outputs]:
            assert tensor.is_contiguous(), operation
        inputs = [x.detach() for x in inputs]
        # In a thread of its own: in this one, gradients are not recorded inside an operator.
        with ThreadPoolExecutor(1) as thread:
            compute = getattr(self, operation)
            found = thread.submit(compute, inputs, integers, *numbers).result()
        assert len(found) == len(outputs)
        assert has_workspace or not operation.endswith("norm_gradient"), operation
        for place, (to, values) in enumerate(zip(outputs, found)):
            assert to.shape == values.shape, (operation, to.shape, values.shape)
            assert to.dtype == OTHER_TYPES.get((operation, place), inputs[0].dtype), operation
            to.copy_(values.detach())
        return 1

    def attention_forward(self, inputs, integers, scale):
        return attention(*inputs, integers[6:], scale)

    def attention_backward(self, inputs, integers, scale):
        q, k, v, out, sums, gradient = inputs
        leaves = [x.double().requires_grad_() for x in (q, k, v)]
        again, again_sums = attention(*leaves, integers[6:], scale)
        torch.testing.assert_close(again.to(out.dtype), out)  # what was saved is what was computed
        torch.testing.assert_close(again_sums.float(), sums)
        return torch.autograd.grad(again, leaves, gradient.double())

    def attention_sequences_forward(self, inputs, integers, scale):
        return packed(*inputs, integers[5:], scale)

    def attention_sequences_backward(self, inputs, integers, scale):
        q, k, v, out, sums, gradient, starts = inputs
        leaves = [x.double().requires_grad_() for x in (q, k, v)]
        again, again_sums = packed(*leaves, starts, integers[5:], scale)
        torch.testing.assert_close(again.to(out.dtype), out)
        torch.testing.assert_close(again_sums.float(), sums)
        return torch.autograd.grad(again, leaves, gradient.double())

    def experts_forward(self, inputs, integers):
        tokens, up, down, logits, _bias = inputs
        count, number, top_k, _, hidden, gate, renormalise = integers[:7]
        out, chosen, weights = experts(tokens, up, down, logits, top_k, gate, renormalise)
        loads = torch.bincount(chosen.flatten(), minlength=number)
        rows = count * top_k if self.saves else 0
        tiles = rows // 128 + min(number, rows) + 1
        plan = torch.full((4 * tiles + 2 * number + 3 * rows if rows else 0,), 7)
        return out, chosen, weights, loads, torch.zeros(2), plan, torch.ones(2 * rows * hidden)

    def experts_backward(self, inputs, integers):
        tokens, up, down, logits, chosen, weights, _, _, plan, projections, gradient = inputs
        assert (plan == 7).all() and (projections == 1).all()  # what was saved
        leaves = [x.double().requires_grad_() for x in (tokens, up, down, logits)]
        out, again, again_weights = experts(*leaves, integers[2], *integers[5:7])
        assert (again == chosen).all()
        torch.testing.assert_close(again_weights.float(), weights)
        return torch.autograd.grad(out, leaves, gradient.double())

    def rms_norm(self, inputs, _, epsilon):
        return (norm(*(x.double() for x in inputs), epsilon),)

    def residual_rms_norm(self, inputs, _, epsilon):
        x, residual, weight = (x.double() for x in inputs)
        return x + residual, norm(x + residual, weight, epsilon)

    def residual_relu_layer_norm(self, inputs, _, epsilon):
        return (layer_norm(*(x.double() for x in inputs), epsilon),)

    def softmax(self, inputs, _):
        return (torch.softmax(inputs[0].double(), -1),)

    def softmax_gradient(self, inputs, _):
        y, gradient = (x.double() for x in inputs)
        return (y * (gradient - (y * gradient).sum(-1, keepdim=True)),)

    def rms_norm_gradient(self, inputs, _, epsilon):
        x, weight, gradient = (x.double() for x in inputs)
        return self._gradient(lambda x, weight: norm(x, weight, epsilon), [x, weight], gradient)

    def residual_rms_norm_gradient(self, inputs, _, epsilon):
        of_x, of_weight = self.rms_norm_gradient(inputs[:3], _, epsilon)
        return of_x + inputs[3].double(), of_weight

    def residual_relu_layer_norm_gradient(self, inputs, _, epsilon):
        x, residual, weight, gradient = (x.double() for x in inputs)
        return self._gradient(
            lambda x, weight, bias: layer_norm(x, residual, weight, bias, epsilon),
            [x, weight, torch.zeros_like(weight)],
            gradient,
        )

    @staticmethod
    def _gradient(function, leaves, gradient):
        leaves = [x.requires_grad_() for x in leaves]
        return torch.autograd.grad(function(*leaves), leaves, gradient)


@unittest.skipIf(torch is None, "no PyTorch")
class Operators(unittest.TestCase):
    def setUp(self):
        from apex_cuda import kernels
        from apex_cuda.kernels import _torch

        self.kernels = kernels
        self.reference = Reference()
        self.form = 2  # what the library says that it would run: "hopper"
        for name, value in [
            ("_launch", self.reference),
            ("_plan", lambda *_arguments: (0, self.form)),
        ]:
            patch = mock.patch.object(_torch, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        torch.manual_seed(1)

    def random(self, *shape):
        return torch.randn(*shape, dtype=torch.bfloat16, requires_grad=True)

    def heads(self, queries=5, keys=7, layout="bhsd"):
        """Queries of four heads, keys and values of two."""
        shapes = [(2, 4, queries, 64), (2, 2, keys, 64), (2, 2, keys, 64)]
        if layout == "bshd":
            shapes = [(b, s, h, d) for b, h, s, d in shapes]
        return [self.random(*shape) for shape in shapes]

    def check(self, ours, theirs, leaves):
        """That outputs and gradients of two functions agree, at bfloat16."""
        found, expected = ours(*leaves), theirs(*(x.double() for x in leaves))
        found, expected = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
        given = [torch.randn(x.shape).to(x.dtype) for x in found]
        gradients = torch.autograd.grad(found, leaves, given)
        needed = torch.autograd.grad(expected, leaves, [x.double() for x in given])
        for one, other in zip([*found, *gradients], [*expected, *needed]):
            self.assertEqual(one.dtype, torch.bfloat16)
            distance = (one.double() - other).norm() / other.norm().clamp_min(1e-30)
            self.assertLess(distance, 0.02)

    def test_attention_and_its_gradients(self):
        scale = 1 / 8
        for mask, options in [
            ({}, [0, 0, -1, -1, 0]),
            ({"causal": True}, [0, 1, -1, -1, 0]),
            ({"window": (2, None)}, [0, 2, 2, -1, 0]),
            ({"window": (1, 0), "form": "flash"}, [0, 2, 1, 0, 1]),
        ]:
            with self.subTest(mask):
                self.check(
                    lambda q, k, v: self.kernels.attention(q, k, v, **mask),
                    lambda q, k, v: attention(q, k, v, options, scale)[0],
                    self.heads(),
                )

    def test_attention_is_pytorchs_for_as_many_queries_as_keys(self):
        q, k, v = (self.random(1, 3, 6, 64) for _ in range(3))
        self.check(
            lambda q, k, v: self.kernels.attention(q, k, v, causal=True),
            lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True
            ),
            [q, k, v],
        )

    def test_layouts(self):
        rows_first = self.heads(layout="bshd")
        swapped = [x.transpose(1, 2) for x in rows_first]
        expected = self.kernels.attention(*(x.contiguous() for x in swapped))
        as_they_are = self.kernels.attention(*rows_first, layout="bshd")
        torch.testing.assert_close(as_they_are.transpose(1, 2), expected)
        # A view that is transposed is not copied, and its result is laid out as PyTorch's is.
        found = self.kernels.attention(*swapped)
        torch.testing.assert_close(found, expected)
        self.assertTrue(found.transpose(1, 2).is_contiguous())
        # Any other strides are made contiguous.
        wide = torch.randn(2, 4, 5, 128, dtype=torch.bfloat16)[..., ::2]
        self.kernels.attention(wide, *swapped[1:])

    def test_no_keys_see_nothing(self):
        q, k, v = self.heads(keys=0)
        out, sums = self.kernels.attention(q, k, v, return_log_sum_exp=True)
        self.assertTrue((out == 0).all() and (sums == -math.inf).all())
        self.assertFalse(sums.requires_grad)
        out.sum().backward()
        self.assertTrue((q.grad == 0).all())
        self.assertEqual(self.reference.calls, [])

    def test_packed_attention_and_its_gradients(self):
        lengths, key_lengths = (3, 0, 5), (4, 2, 5)
        sequences = self.kernels.Sequences(lengths, key_lengths, device="cpu")
        q, k, v = self.random(8, 4, 64), self.random(11, 2, 64), self.random(11, 2, 64)
        for mask, options in [({}, (0, -1, -1)), ({"window": (2, 0)}, (2, 2, 0))]:
            with self.subTest(mask):
                self.check(
                    lambda q, k, v: self.kernels.packed_attention(q, k, v, sequences, **mask),
                    lambda q, k, v: packed(q, k, v, sequences.starts, (1, *options), 1 / 8)[0],
                    [q, k, v],
                )
        with self.assertRaisesRegex(ValueError, "7 and 11 rows, and the sequences 8 and 11"):
            self.kernels.packed_attention(q[:7], k, v, sequences)

    def test_experts_and_their_gradients(self):
        tokens, up, down = self.random(7, 16), self.random(4, 2, 8, 16), self.random(4, 16, 8)
        logits = torch.randn(7, 4, requires_grad=True)
        for gate, renormalise in [("softmax", True), ("sigmoid", False)]:
            chosen = {"top_k": 2, "gate": gate, "renormalise": renormalise}
            out = self.kernels.mixture_of_experts(tokens, logits, up, down, **chosen)
            leaves = (tokens, up, down, logits)
            right, *_ = experts(*leaves, 2, gate == "sigmoid", renormalise)
            given = torch.randn_like(right).bfloat16()
            found = torch.autograd.grad(out, leaves, given)
            needed = torch.autograd.grad(right, leaves, given.double())
            for one, other in zip([out, *found], [right, *needed]):
                self.assertLess((one.double() - other).norm() / other.norm(), 0.02)
            self.assertEqual(found[3].dtype, torch.float32)

    def test_experts_save_nothing_without_gradients_and_tell_the_routing(self):
        tokens, up, down = self.random(7, 16), self.random(4, 2, 8, 16), self.random(4, 16, 8)
        logits = torch.randn(7, 4)
        self.reference.saves = False
        with torch.no_grad():
            out, routing = self.kernels.mixture_of_experts(
                tokens, logits, up, down, top_k=2, return_routing=True
            )
        self.assertFalse(out.requires_grad)
        self.assertTrue((routing.experts == logits.topk(2).indices).all())
        self.assertEqual(int(routing.loads.sum()), 14)
        self.reference.saves = True
        _, routing = self.kernels.mixture_of_experts(
            tokens, logits, up, down, top_k=2, return_routing=True
        )
        self.assertFalse(routing.weights.requires_grad)

    def test_norms_and_their_gradients(self):
        weight, bias = self.random(48), self.random(48)
        for shape in [(3, 48), (2, 5, 48)]:
            x, residual = self.random(*shape), self.random(*shape)
            self.check(
                lambda x, w: self.kernels.rms_norm(x, w, epsilon=0.1),
                lambda x, w: norm(x, w, 0.1),
                [x, weight],
            )
            self.check(
                lambda x, r, w: self.kernels.residual_rms_norm(x, r, w, epsilon=0.1),
                lambda x, r, w: (x + r, norm(x + r, w, 0.1)),
                [x, residual, weight],
            )
            self.check(
                lambda *tensors: self.kernels.residual_relu_layer_norm(*tensors, epsilon=0.1),
                lambda *tensors: layer_norm(*tensors, 0.1),
                [x, residual, weight, bias],
            )
            self.check(self.kernels.softmax, lambda x: torch.softmax(x, -1), [x])

    def test_operators_pass_pytorchs_own_checks(self):
        operators = torch.ops.apex_cuda
        q, k, v = self.heads()
        x, residual = self.random(3, 48), self.random(3, 48)
        weight, bias = self.random(48), self.random(48)
        starts = torch.tensor([(0, 0), (2, 2), (5, 5)], dtype=torch.int32)
        packed_heads = (*(self.random(5, 2, 64) for _ in range(3)), starts)
        layer = (self.random(7, 16), self.random(4, 2, 8, 16), self.random(4, 16, 8))
        layer = (*layer, torch.randn(7, 4, requires_grad=True))
        for operator, arguments in [
            (operators.attention_forward, (q, k, v, [0, 1, -1, -1, 0], 0.125)),
            (operators.rms_norm, (x, weight, 1e-6)),
            (operators.residual_rms_norm, (x, residual, weight, 1e-6)),
            (operators.residual_relu_layer_norm, (x, residual, weight, bias, 1e-5)),
            (operators.softmax, (x,)),
            (
                operators.packed_attention_forward,
                (*packed_heads, [1, 1, -1, -1, 0, 3, 3, 2], 0.125),
            ),
            (operators.experts_forward, (*layer, torch.empty(0), [2, 0, 1, -1, 0], True)),
        ]:
            with self.subTest(operator=str(operator)):
                # Schema, fake tensors, registration of autograd, both traced with dynamic shapes.
                torch.library.opcheck(operator.default, arguments)

    def test_calls_skip_the_dispatcher_unless_somebody_watches(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Watcher(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                seen.append(function)
                return function(*args, **(kwargs or {}))

        x, weight = self.random(3, 48), self.random(48)
        alone = self.kernels.rms_norm(x, weight)
        self.assertNotIn("apex_cuda", type(alone.grad_fn).__module__)
        seen = []
        with Watcher():
            watched = self.kernels.rms_norm(x, weight)
        operators = torch.ops.apex_cuda
        self.assertIn(operators.rms_norm.default, seen)
        torch.testing.assert_close(watched, alone)
        with torch.profiler.profile() as profile:
            self.kernels.rms_norm(x, weight).sum().backward()
        names = {event.key for event in profile.key_averages()}
        self.assertLessEqual({"apex_cuda::rms_norm", "apex_cuda::rms_norm_gradient"}, names)

    def test_there_is_no_second_gradient_and_that_is_said(self):
        x = self.random(3, 48)
        (gradient,) = torch.autograd.grad(self.kernels.softmax(x).sum(), x, create_graph=True)
        with self.assertRaises(RuntimeError):
            gradient.sum().backward()

    def test_nothing_is_made_for_sums_that_have_no_gradient(self):
        q, k, v = (self.random(1, 2, rows, 64) for rows in (5, 9, 9))
        out = self.kernels.attention(q, k, v)
        given = torch.ones_like(out)
        with torch.profiler.profile() as profile:
            torch.autograd.grad(out, (q, k, v), given)
        names = {event.key for event in profile.key_averages()}
        self.assertIn("apex_cuda::attention_backward", names)
        self.assertNotIn("aten::zeros", names)

    def on_a_gpu(self, capability=(9, 0), flash=True):
        """What is asked of a GPU before PyTorch's backward pass is taken."""
        for place, name, value in [
            (torch.cuda, "get_device_capability", capability),
            (torch.backends.cuda, "is_flash_attention_available", flash),
        ]:
            patch = mock.patch.object(place, name, lambda *_arguments, value=value: value)
            patch.start()
            self.addCleanup(patch.stop)

    def test_pytorchs_backward_pass_runs_where_the_library_has_a_portable_one_alone(self):
        q, k = self.random(1, 2, 5, 256), self.random(1, 2, 7, 256)
        ask = self.kernels.attention_backward_form
        self.assertEqual(ask(q, k), "hopper")
        self.form = 1  # "flash"
        self.on_a_gpu()
        self.assertEqual(ask(q, k), "pytorch")
        self.assertEqual(ask(q, k, causal=True), "pytorch")
        self.assertEqual(ask(q, k, form="flash"), "flash")
        self.assertEqual(ask(q, k, form="hopper"), "pytorch")
        # Rows that see nothing have other log-sum-exps there.
        self.assertEqual(ask(k, q), "pytorch")
        self.assertEqual(ask(k, q, causal=True), "flash")
        self.assertEqual(ask(k, q, window=(1, 1)), "flash")
        self.assertEqual(ask(q[:, :, :0], k), "flash")
        for capability, wide, narrow in [
            ((8, 0), "pytorch", "pytorch"),
            ((8, 6), "flash", "pytorch"),
            ((7, 5), "flash", "flash"),
        ]:
            self.on_a_gpu(capability)
            self.assertEqual(ask(q, k), wide)
            self.assertEqual(ask(q[..., :64], k[..., :64]), narrow)
        self.on_a_gpu(flash=False)
        self.assertEqual(ask(q, k), "flash")

    def test_pytorchs_backward_pass_is_given_what_it_takes(self):
        self.form = 1
        self.on_a_gpu()
        schema = torch.ops.aten._flash_attention_backward.default._schema

        def flash(gradient, q, k, v, out, sums, *rest, scale, **window):
            # The arguments that PyTorch names, on tensors without elements: the shapes that it
            # says.
            bare = [x.to("meta") for x in (gradient, q, k, v, out, sums)]
            rest_bare = [x.to("meta") if isinstance(x, torch.Tensor) else x for x in rest]
            shapes = flash_of_pytorch(*bare, *rest_bare, scale=scale, **window)
            self.assertEqual([x.shape for x in shapes], [q.shape, k.shape, v.shape])
            named = dict(zip((argument.name for argument in schema.arguments[6:]), rest), **window)
            self.assertEqual((named["max_q"], named["max_k"]), (q.shape[1], k.shape[1]))
            self.assertEqual(named["dropout_p"], 0.0)
            sides = [named[f"window_size_{side}"] for side in ("left", "right")]
            options = [1, 1 if named["is_causal"] else 0, -1, -1, 0]
            if sides != [None, None]:
                options[1:4] = [2, *(-1 if side is None else side for side in sides)]
            inputs = [x.contiguous() for x in (q, k, v, out)] + [sums, gradient.contiguous()]
            found = [torch.empty(x.shape, dtype=x.dtype) for x in (q, k, v)]
            self.reference("attention_backward", inputs, found, [0] * 6 + options, [scale])
            seen.append(options)
            return tuple(found)

        flash_of_pytorch, seen = torch.ops.aten._flash_attention_backward, []
        with mock.patch.object(torch.ops.aten, "_flash_attention_backward", flash):
            for layout in ("bhsd", "bshd"):
                for mask, options in [
                    ({}, [0, 0, -1, -1, 0]),
                    ({"causal": True}, [0, 1, -1, -1, 0]),
                    ({"window": (2, None)}, [0, 2, 2, -1, 0]),
                    ({"window": (None, 1)}, [0, 2, -1, 1, 0]),
                    ({"window": (None, None)}, [0, 0, -1, -1, 0]),
                ]:
                    with self.subTest(layout=layout, **mask):
                        options = [int(layout == "bshd"), *options[1:]]
                        self.check(
                            lambda q, k, v: self.kernels.attention(q, k, v, layout=layout, **mask),
                            lambda q, k, v: attention(q, k, v, options, 1 / 8)[0],
                            self.heads(layout=layout),
                        )
                        self.assertEqual(seen[-1][1:], options[1:])
        self.assertEqual(len(seen), 10)

    def test_compiled_without_a_break_it_is_the_same(self):
        q, k, v = self.heads()
        weight = self.random(64)

        def block(q, k, v, weight):
            out = self.kernels.attention(q.transpose(1, 2), k, v, causal=True, layout="bhsd")
            total, y = self.kernels.residual_rms_norm(out, out * 2, weight)
            return self.kernels.softmax(y) + total

        q = q.detach().transpose(1, 2).contiguous().requires_grad_()
        leaves = [q, k, v, weight]
        expected = block(*leaves)
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=None)
        found = compiled(*leaves)
        torch.testing.assert_close(found, expected)
        given = torch.randn_like(expected)
        for one, other in zip(
            torch.autograd.grad(found, leaves, given), torch.autograd.grad(expected, leaves, given)
        ):
            torch.testing.assert_close(one, other)
        # Other sizes, which are dynamic from the second on.
        q, k, v = self.heads(queries=6, keys=9)
        leaves = [q.detach().transpose(1, 2).contiguous(), k.detach(), v.detach(), weight.detach()]
        torch.testing.assert_close(compiled(*leaves), block(*leaves))

    def test_what_is_refused(self):
        q, k, v = self.heads()
        x, weight = self.random(3, 48), self.random(48)
        for message, call in [
            (
                "head dimension is 80",
                lambda: self.kernels.attention(*[self.random(1, 1, 2, 80)] * 3),
            ),
            ("k and v differ", lambda: self.kernels.attention(q, k, v[:, :, 1:])),
            ("cannot share", lambda: self.kernels.attention(q[:, :3], k, v)),
            ("four dimensions", lambda: self.kernels.attention(q[0], k[0], v[0])),
            ("form is 'fast'", lambda: self.kernels.attention(q, k, v, form="fast")),
            ("layout is", lambda: self.kernels.attention(q, k, v, layout="sbhd")),
            ("pass either", lambda: self.kernels.attention(q, k, v, causal=True, window=(1, 1))),
            ("not be negative", lambda: self.kernels.attention(q, k, v, window=(-1, 1))),
            ("weight has shape (47,)", lambda: self.kernels.rms_norm(x, weight[1:])),
            ("they must be the same", lambda: self.kernels.rms_norm(x, weight.float())),
            ("has no rows", lambda: self.kernels.softmax(x[:, :0])),
        ]:
            with self.subTest(message), self.assertRaises(ValueError) as raised:
                call()
            self.assertIn(message, str(raised.exception))
        self.assertEqual(self.reference.calls, [])


@unittest.skipIf(torch is None, "no PyTorch")
class WithoutReference(unittest.TestCase):
    def test_tensors_of_the_host_are_refused(self):
        from apex_cuda import kernels

        x = torch.ones(2, 8, dtype=torch.float16)
        with self.assertRaises(ValueError) as raised:
            kernels.softmax(x)
        self.assertIn("needs tensors of one CUDA device", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
