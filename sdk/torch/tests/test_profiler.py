"""torch.profiler on xpud, and the history of allocations, as PyTorch's own readers take them.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_profiler.py
"""

import json
import pathlib
import pickle
import subprocess
import tempfile
import threading
import time
import unittest

import torch
import torch_xpud  # noqa: F401  also without the entry point
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).to("xpud")


def step(net, batch):
    with record_function("a step"):
        loss = net(batch.to("xpud")).square().mean()
        loss.backward()
    return loss.item()


def trace_of(profiled):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "trace.json")
        profiled.export_chrome_trace(str(path))
        return json.loads(path.read_text())["traceEvents"]


def of_category(events, category):
    return [event for event in events if event.get("cat") == category and event["ph"] == "X"]


@unittest.skipUnless(torch_xpud._C.records_activities, "this torch's profiler takes no other devices")
class ProfilerTest(unittest.TestCase):
    def setUp(self):
        self.net, self.batch = model(), torch.randn(32, 64)
        step(self.net, self.batch)

    def profiled(self, **options):
        begin = time.monotonic()
        with profile(activities=BOTH, **options) as profiled:
            step(self.net, self.batch)
        return profiled, (time.monotonic() - begin) * 1e6

    def test_operators_have_the_time_of_their_kernels(self):
        profiled, wall = self.profiled()
        rows = {row.key: row for row in profiled.key_averages()}
        for name in ("aten::addmm", "aten::mm", "aten::relu", "aten::_copy_from"):
            self.assertGreater(rows[name].self_device_time_total, 0, name)
        kernels = [row for row in rows.values() if row.device_type == torch.autograd.DeviceType.PrivateUse1]
        total = sum(row.self_device_time_total for row in kernels)
        self.assertTrue(0 < total < wall, (total, wall))
        self.assertAlmostEqual(total, sum(row.self_device_time_total for row in rows.values()
                                          if row.device_type == torch.autograd.DeviceType.CPU), delta=0.01 * total)
        self.assertIn("Self XPUD", profiled.key_averages().table(sort_by="self_device_time_total"))

    def test_a_trace_has_kernels_with_arrows_from_their_operators(self):
        events = trace_of(self.profiled()[0])
        operators = {event["args"]["External id"]: event for event in of_category(events, "cpu_op")}
        launches = {event["args"]["correlation"]: event for event in of_category(events, "privateuse1_runtime")}
        work = of_category(events, "kernel") + of_category(events, "gpu_memcpy")
        self.assertGreater(len(work), 10)
        for event in work:
            operator, launch = operators[event["args"]["External id"]], launches[event["args"]["correlation"]]
            self.assertEqual(launch["tid"], operator["tid"])
            # Kineto reads another clock for operators.
            self.assertTrue(operator["ts"] - 20 <= launch["ts"] <= operator["ts"] + operator["dur"] + 20, (operator, launch))
            self.assertGreaterEqual(event["ts"] + event["dur"], launch["ts"])
        order = sorted(work, key=lambda event: event["ts"])
        for before, after in zip(order, order[1:]):  # one queue
            self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 0.002, "kernels overlap")
        ends = {event["id"]: event for event in events if event.get("cat") == "ac2g" and event["ph"] == "f"}
        self.assertEqual(ends.keys(), {event["id"] for event in events if event.get("cat") == "ac2g" and event["ph"] == "s"})
        self.assertEqual(ends.keys(), launches.keys())
        self.assertIn("a step", [event["name"] for event in of_category(events, "user_annotation")])
        copies = [event["name"] for event in of_category(events, "gpu_memcpy")]
        self.assertEqual(sorted(set(copies)), ["Memcpy DtoH", "Memcpy HtoD"])

    def test_threads_and_streams(self):
        stream = torch.xpud.Stream()
        x = torch.randn(64, 64, device="xpud")
        torch.xpud.synchronize()

        def work():
            with torch.xpud.stream(stream):
                torch.tanh(x)

        with profile(activities=BOTH) as profiled:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            torch.sigmoid(x)
        events = trace_of(profiled)
        kernels = {event["args"]["op"]: event for event in of_category(events, "kernel")}
        self.assertNotEqual(kernels["tanh"]["tid"], kernels["sigmoid"]["tid"], "streams have tracks of their own")
        operators = {event["args"]["External id"]: event for event in of_category(events, "cpu_op")}
        self.assertEqual(operators[kernels["sigmoid"]["args"]["External id"]]["name"], "aten::sigmoid")

    def test_stacks(self):
        profiled, _ = self.profiled(with_stack=True, experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True))
        with tempfile.TemporaryDirectory() as folder:
            stacks = pathlib.Path(folder, "stacks")
            profiled.export_stacks(str(stacks), "self_privateuse1_time_total")
            self.assertRegex(stacks.read_text(), r"_step;.*_forward;.*linear> \d+\n")

    def test_schedules_and_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            with profile(activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2, repeat=2), profile_memory=True, record_shapes=True,
                         with_stack=True, on_trace_ready=tensorboard_trace_handler(folder)) as profiled:
                for _ in range(8):
                    step(self.net, self.batch)
                    profiled.step()
            traces = [json.loads(path.read_text())["traceEvents"] for path in pathlib.Path(folder).iterdir()]
            self.assertEqual(len(traces), 2)
            for events in traces:
                steps = [event for event in of_category(events, "user_annotation") if event["name"].startswith("ProfilerStep")]
                self.assertEqual(len(steps), 2)
                self.assertGreater(len(of_category(events, "kernel")), 20)
            rows = profiled.key_averages()
            self.assertGreater(max(row.self_device_memory_usage for row in rows), 32 * 256 * 4 - 1)

    def test_the_cpu_alone_records_no_kernels(self):
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            step(self.net, self.batch)
        self.assertEqual(of_category(trace_of(profiled), "kernel"), [])

    def test_ranges(self):
        with profile(activities=BOTH) as profiled:
            self.assertEqual(torch.xpud.range_push("outer"), 0)
            self.assertEqual(torch.xpud.range_push("inner"), 1)
            torch.ones(8, device="xpud") + 1
            self.assertEqual(torch.xpud.range_pop(), 1)
            self.assertEqual(torch.xpud.range_pop(), 0)
            with self.assertRaisesRegex(RuntimeError, "without a range_push"):
                torch.xpud.range_pop()
        names = [event["name"] for event in of_category(trace_of(profiled), "user_annotation")]
        self.assertTrue({"outer", "inner"} <= set(names), names)

    def test_a_fork_and_a_second_profile_do_not_disturb(self):
        with profile(activities=BOTH):
            subprocess.run(["true"], check=True)
        self.assertGreater(len(of_category(trace_of(self.profiled()[0]), "kernel")), 5)


class MemoryHistoryTest(unittest.TestCase):
    def setUp(self):
        torch.xpud.init()
        self.addCleanup(torch.xpud.memory._record_memory_history, None)

    def allocate_here(self, size):
        return torch.empty(size, dtype=torch.uint8, device="xpud")

    def test_a_snapshot_says_who_holds_memory(self):
        torch.xpud.memory._record_memory_history(clear_history=True)
        kept, freed = self.allocate_here(12_345), self.allocate_here(54_321)
        del freed
        snapshot = torch.xpud.memory._snapshot()
        segments = {segment["total_size"]: segment for segment in snapshot["segments"]}
        self.assertIn("allocate_here", [frame["name"] for frame in segments[12_345]["blocks"][0]["frames"]])
        self.assertNotIn(54_321, segments)
        events = [(entry["action"], entry["size"]) for entry in snapshot["device_traces"][0]]
        self.assertEqual(events, [("segment_alloc", 12_345), ("alloc", 12_345), ("segment_alloc", 54_321), ("alloc", 54_321),
                                  ("free_requested", 54_321), ("free_completed", 54_321), ("segment_free", 54_321)])
        self.assertEqual(sum(segment["total_size"] for segment in torch.xpud.memory_snapshot()), torch.xpud.memory_allocated())
        del kept

    def test_pytorch_reads_it(self):
        from torch.cuda import _memory_viz

        torch.xpud.memory._record_memory_history(max_entries=50, clear_history=True)
        kept = [self.allocate_here(100 + i) for i in range(60)]
        with self.assertRaises(torch.OutOfMemoryError):
            self.allocate_here(1 << 46)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "snapshot.pickle")
            torch.xpud.memory._dump_snapshot(str(path))
            self.assertEqual([each.name for each in pathlib.Path(folder).iterdir()], ["snapshot.pickle"])
            data = pickle.loads(path.read_bytes())
        text = _memory_viz.trace(data)
        self.assertIn("raise OutOfMemoryError # 64.0TiB requested", text)
        self.assertIn("159.0B", text)
        self.assertNotIn("105.0B", text, "50 events are kept")
        self.assertIn("total_allocated", _memory_viz.segsum(data))
        self.assertIn("snapshot", _memory_viz.trace_plot(data))
        del kept

    def test_options(self):
        history = torch.xpud.memory._record_memory_history
        history("state", clear_history=True)
        kept = self.allocate_here(777)
        snapshot = torch.xpud.memory._snapshot()
        self.assertEqual(snapshot["device_traces"][0], [])
        self.assertTrue(next(each for each in snapshot["segments"] if each["total_size"] == 777)["frames"])
        del kept
        history(context="alloc", skip_actions=["segment_alloc", "segment_free", "free_requested"], clear_history=True)
        self.allocate_here(888)
        entries = torch.xpud.memory._snapshot()["device_traces"][0]
        self.assertEqual([(each["action"], bool(each["frames"])) for each in entries], [("alloc", True), ("free_completed", False)])
        for wrong in ({"enabled": "some"}, {"context": "none"}, {"stacks": "cpp"}, {"skip_actions": ["allocate"]}):
            with self.assertRaises(ValueError):
                history(**wrong)
        history(None)
        before = len(torch.xpud.memory._snapshot()["device_traces"][0])
        self.allocate_here(999)
        self.assertEqual(len(torch.xpud.memory._snapshot()["device_traces"][0]), before)

    def test_an_allocation_that_fails_frees_nothing(self):
        torch.xpud.memory._record_memory_history(clear_history=True)
        with self.assertRaises(torch.OutOfMemoryError):
            self.allocate_here(torch.xpud.mem_get_info()[1])
        self.assertEqual([each["action"] for each in torch.xpud.memory._snapshot()["device_traces"][0]], ["oom"])

    def test_a_limit_for_this_process(self):
        self.addCleanup(torch.xpud.set_per_process_memory_fraction, 1.0)
        total = torch.xpud.mem_get_info()[1]
        torch.xpud.set_per_process_memory_fraction((torch.xpud.memory_allocated() + (8 << 20)) / total)
        kept = self.allocate_here(6 << 20)
        with self.assertRaisesRegex(torch.OutOfMemoryError, r"Tried to allocate 4.00 MiB. Of the .* that set_per_process_memory_fraction allows"):
            self.allocate_here(4 << 20)
        del kept
        self.allocate_here(4 << 20)
        for wrong, error in ((1.5, ValueError), (-0.1, ValueError), ("half", TypeError)):
            with self.assertRaises(error):
                torch.xpud.set_per_process_memory_fraction(wrong)

    def test_modules(self):
        from torch.xpud.memory import memory_allocated
        from torch.xpud.random import manual_seed
        from torch.xpud.streams import Stream

        self.assertIs(memory_allocated, torch.xpud.memory_allocated)
        self.assertIs(manual_seed, torch.xpud.manual_seed)
        self.assertIs(Stream, torch.xpud.Stream)


def flops(build, device, backward):
    """Returns what PyTorch's two counters count: FlopCounterMode in all, and torch.profiler for matrix products."""

    def run():
        with torch.set_grad_enabled(backward):
            results = module(*inputs)
            loss = sum(each.sum() for each in results if each is not None) if isinstance(results, tuple) else results.sum()
            if backward:
                loss.backward()

    module, *inputs = build()
    module = module.to(device)
    inputs = [each.to(device).requires_grad_() for each in inputs]
    with FlopCounterMode(display=False) as counter:
        run()
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as profiled:
        run()
    products = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::conv2d")
    return counter.get_total_flops(), sum(row.flops for row in profiled.key_averages() if row.key in products)


FLOPS = {
    "linear": lambda: (torch.nn.Linear(8, 16), torch.randn(1, 8)),
    "linear of a vector": lambda: (torch.nn.Linear(8, 16), torch.randn(8)),
    "linear of three dimensions": lambda: (torch.nn.Linear(8, 16), torch.randn(2, 3, 8)),
    "linear without bias": lambda: (torch.nn.Linear(8, 16, bias=False), torch.randn(2, 3, 8)),
    "mlp": lambda: (torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)), torch.randn(3, 8)),
    "conv2d": lambda: (torch.nn.Conv2d(3, 8, 3, padding=1), torch.randn(2, 3, 8, 8)),
    "conv1d in groups": lambda: (torch.nn.Conv1d(4, 8, 3, groups=2), torch.randn(2, 4, 8)),
    "transposed": lambda: (torch.nn.ConvTranspose2d(3, 8, 3, stride=2), torch.randn(2, 3, 8, 8)),
    "bilinear": lambda: (torch.nn.Bilinear(8, 4, 16), torch.randn(2, 8), torch.randn(2, 4)),
    "attention": lambda: (torch.nn.MultiheadAttention(8, 2, batch_first=True), *[torch.randn(2, 5, 8)] * 3),
    "LSTM cell": lambda: (torch.nn.LSTMCell(4, 8), torch.randn(2, 4)),
    "GRU cell": lambda: (torch.nn.GRUCell(4, 8), torch.randn(2, 4)),
}


class FlopsTest(unittest.TestCase):
    def test_counted_as_on_the_cpu(self):
        for name, build in FLOPS.items():
            for backward in (False, True):
                with self.subTest(name, backward=backward):
                    self.assertEqual(flops(build, "xpud", backward), flops(build, "cpu", backward))

    def test_only_the_gradients_that_are_computed_count(self):
        module = torch.nn.Linear(8, 16).to("xpud")
        with FlopCounterMode(display=False) as counter:
            module(torch.randn(4, 8, device="xpud")).sum().backward()
        self.assertEqual(counter.get_total_flops(), 2 * 2 * 4 * 8 * 16)

    def test_fused_attention_counts_as_on_cuda(self):
        q, k = torch.randn(2, 3, 5, 8, device="xpud", requires_grad=True), torch.randn(2, 3, 7, 8, device="xpud", requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            result = torch.nn.functional.scaled_dot_product_attention(q, k, k)
        self.assertEqual(counter.get_total_flops(), sdpa_flop_count(q.shape, k.shape, k.shape))
        with FlopCounterMode(display=False) as counter:
            result.sum().backward()
        self.assertEqual(counter.get_total_flops(), sdpa_backward_flop_count(q.shape, q.shape, k.shape, k.shape))


class OperatorProfilerTest(unittest.TestCase):
    """torch.autograd.profiler.profile, which torch.profiler replaced."""

    def test_operators_have_time_on_the_device(self):
        x = torch.randn(256, 256, device="xpud")
        with torch.autograd.profiler.profile(use_device="xpud") as profiled:
            (x @ x).relu().sum().item()
        rows = {row.key: row for row in profiled.key_averages()}
        self.assertGreater(rows["aten::mm"].device_time_total, 0)
        self.assertGreater(sum(event.device_time for event in profiled.function_events), 0)
        self.assertIn("Self XPUD", profiled.key_averages().table(sort_by="self_device_time_total"))
        self.assertGreater(profiled.total_average().device_time_total, 0)

    def test_backward_and_streams(self):
        stream, net, batch = torch.xpud.Stream(), model(), torch.randn(32, 64)
        with torch.autograd.profiler.profile(use_device="xpud", record_shapes=True, profile_memory=True) as profiled, torch.xpud.stream(stream):
            step(net, batch)
        rows = {row.key: row for row in profiled.key_averages()}
        self.assertGreater(rows["aten::linear_backward"].device_time_total, 0)


if __name__ == "__main__":
    unittest.main()
