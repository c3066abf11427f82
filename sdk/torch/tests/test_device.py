"""Devices, streams, events, memory, random state, saving, processes and errors.

    PYTHONPATH=build/release/lib python -m unittest discover -s sdk/torch/tests -p test_device.py
"""

import copy
import io
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import warnings

import torch
import torch_xpud  # noqa: F401  also without the entry point


def run(program, **environment):
    """Runs a program in a new Python process. Returns its output."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})  # fmt: skip
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


class DeviceTest(unittest.TestCase):
    def test_device_is_known_by_name(self):
        self.assertGreaterEqual(torch.xpud.device_count(), 1)
        self.assertTrue(torch.xpud.is_available())
        self.assertEqual(torch.device("xpud", 0).type, "xpud")
        self.assertEqual(torch.accelerator.current_accelerator().type, "xpud")
        self.assertTrue(torch.xpud.get_device_name())
        self.assertGreater(torch.xpud.get_device_properties().total_memory, 0)
        self.assertTrue(torch.ones(2).xpud().is_xpud)

    def test_index_out_of_range_is_refused(self):
        with self.assertRaises(RuntimeError):
            torch.xpud.set_device(99)
        with self.assertRaises(RuntimeError):
            torch.ones(2, device="xpud:99")

    def test_properties_of_no_device_are_refused(self):
        calls = (torch.xpud.get_device_properties, torch.xpud.get_device_name, torch.xpud.get_device_capability, lambda d: torch.xpud.can_device_access_peer(0, d))
        for call in calls:
            for wrong in (99, -1, "xpud:99"):
                with self.assertRaisesRegex(AssertionError, "Invalid device id"):
                    call(wrong)
            with self.assertRaisesRegex(ValueError, "Expected an xpud device"):
                call("cpu")

    def test_names_of_torch_xpu(self):
        properties = torch.xpud.get_device_capability()
        self.assertEqual(properties["name"], torch.xpud.get_device_name())
        self.assertEqual(properties["total_memory"], torch.xpud.mem_get_info()[1])
        self.assertEqual((torch.xpud.get_arch_list(), torch.xpud.get_gencode_flags()), ([], ""))
        self.assertFalse(torch.xpud.can_device_access_peer(0, 0) or torch.xpud.is_current_stream_capturing() or torch.xpud.is_tf32_supported())
        for name in torch.xpud.__all__:
            self.assertTrue(hasattr(torch.xpud, name), name)

    def test_repr_shows_values_without_falling_back(self):
        before = torch.xpud.fallback_counts()
        text = repr(torch.tensor([1.5, 2.5, float("nan")], device="xpud"))
        self.assertIn("1.5", text)
        self.assertIn("device='xpud:0'", text)
        repr(torch.arange(5, device="xpud"))
        repr(torch.zeros(0, device="xpud"))
        self.assertEqual(torch.xpud.fallback_counts(), before)

    def test_copies_keep_values_types_and_strides(self):
        for source in (torch.arange(24).reshape(2, 3, 4), torch.randn(5, 4).t(), torch.randn(6, 6)[::2, 1::2], torch.randn(3, 1).expand(3, 4),
                       torch.randn(4, dtype=torch.complex64), torch.randn(4, 4, dtype=torch.complex64).t().conj(),
                       torch.tensor([1, 2, 65535], dtype=torch.uint16), torch.tensor(3.5), torch.zeros(0, 3)):  # fmt: skip
            there = source.to("xpud")
            torch.testing.assert_close(there.cpu(), source, check_stride=False)
            if source.numel() > 1:
                self.assertEqual(there.stride(), source.to("cpu", copy=True).stride())
            torch.testing.assert_close(there.t().contiguous().cpu() if source.dim() == 2 else there.cpu(),
                                       source.t() if source.dim() == 2 else source, check_stride=False)  # fmt: skip

    def test_copies_convert(self):
        types = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
        values = torch.tensor([0, 1, 2, 3, 100])
        for source in types:
            for target in types:
                expected = values.to(source).to(target)
                torch.testing.assert_close(values.to(source).to("xpud").to(target).cpu(), expected)
                torch.testing.assert_close(values.to(source).to("xpud").to("cpu", target), expected)
                there = torch.zeros(5, 2, dtype=target, device="xpud").select(1, 0)
                torch.testing.assert_close(there.copy_(values.to(source)).cpu(), expected)

    def test_overlapping_copy_is_refused(self):
        a = torch.arange(8.0, device="xpud")
        with self.assertRaisesRegex(RuntimeError, "refer to a single memory location. Please clone"):
            a[1:].copy_(a[:-1])
        a[1:].copy_(a[:-1].clone())
        self.assertEqual(a.tolist(), [0, 0, 1, 2, 3, 4, 5, 6])

    def test_many_dimensions(self):
        a = torch.randn([2] * 10)
        there = a.to("xpud")
        torch.testing.assert_close(there.permute(*range(9, -1, -1)).contiguous().cpu(), a.permute(*range(9, -1, -1)).contiguous())
        torch.testing.assert_close((there + there).cpu(), a + a)

    def test_views_and_resize_share_and_keep(self):
        a = torch.zeros(4, 4, device="xpud")
        a[1, 2:] = 5
        a.view(16)[15] = 7
        self.assertEqual(a.sum().item(), 17)
        a.resize_(2, 2)
        self.assertEqual(a.tolist(), [[0, 0], [0, 0]])
        a.resize_(8, 8)
        self.assertEqual(a.view(-1)[6].item(), 5)

    def test_memory_statistics(self):
        torch.xpud.synchronize()
        before = torch.xpud.memory_allocated()
        torch.xpud.reset_peak_memory_stats()
        a = torch.empty(1 << 20, dtype=torch.uint8, device="xpud")
        self.assertGreaterEqual(torch.xpud.memory_allocated() - before, 1 << 20)
        del a
        self.assertGreaterEqual(torch.xpud.max_memory_allocated() - before, 1 << 20)
        self.assertLess(torch.xpud.memory_allocated() - before, 1 << 20)

    def test_free_memory_is_what_this_process_could_still_get(self):
        # In a daemon of its own: tests that run beside this one allocate and free.
        program = """
            import subprocess, sys, torch
            free, total = torch.xpud.mem_get_info()
            assert free < total, "a tenth of the device is for others"
            a = torch.empty(64 << 20, dtype=torch.uint8, device="xpud")
            assert torch.xpud.mem_get_info()[0] <= free - a.nbytes
            holds = "import sys, torch; b = torch.empty(48 << 20, dtype=torch.uint8, device='xpud'); torch.xpud.synchronize(); print(); sys.stdin.read()"
            with subprocess.Popen([sys.executable, "-u", "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
                other.stdout.readline()
                assert torch.xpud.mem_get_info()[0] <= free - a.nbytes - (48 << 20)
                other.stdin.close()
            torch.xpud.set_per_process_memory_fraction((a.nbytes + (1 << 20)) / total)
            assert torch.xpud.mem_get_info()[0] <= 1 << 20
            torch.xpud.set_per_process_memory_fraction(1.0)
            free = torch.xpud.mem_get_info()[0]
            assert torch.empty(free // 2, dtype=torch.uint8, device="xpud").nbytes == free // 2
            try:
                torch.empty(free + (1 << 20), dtype=torch.uint8, device="xpud")
                assert False, "more than is free was allocated"
            except torch.OutOfMemoryError:
                pass
            """
        with tempfile.TemporaryDirectory() as folder:
            run(program, XDG_RUNTIME_DIR=folder, XPUD_ADDRESS="")

    def test_memory_statistics_as_dicts_and_text(self):
        a = torch.empty(1 << 20, dtype=torch.uint8, device="xpud")
        torch.xpud.synchronize()
        flat, nested = torch.xpud.memory_stats(), torch.xpud.memory_stats_as_nested_dict()
        self.assertGreaterEqual(flat["allocated_bytes.all.current"], a.nbytes)
        self.assertEqual(nested["allocated_bytes"]["all"]["current"], flat["allocated_bytes.all.current"])
        self.assertEqual(nested["num_ooms"], flat["num_ooms"])
        self.assertLessEqual(torch.xpud.device_memory_used(), torch.xpud.mem_get_info()[1])
        self.assertRegex(torch.xpud.memory_summary(), r"(?s)\(MiB\).*allocated +\d+\.\d.*peak.*reserved")

    def test_data_pointers_are_unique(self):
        a, b = torch.zeros(4, device="xpud"), torch.zeros(4, device="xpud")
        self.assertNotEqual(a.data_ptr(), 0)
        self.assertNotEqual(a.data_ptr(), b.data_ptr())
        self.assertEqual(a[1:].data_ptr() - a.data_ptr(), 4)


class StreamTest(unittest.TestCase):
    def test_work_on_a_stream_is_waited_for_by_event(self):
        stream = torch.xpud.Stream()
        with torch.xpud.stream(stream):
            self.assertEqual(torch.xpud.current_stream().stream_id, stream.stream_id)
            a = torch.full((64, 64), 2.0, device="xpud")
            b = a @ a
            event = stream.record_event()
        event.wait()
        self.assertEqual((b + 1).sum().item(), 64 * 64 * 257)
        self.assertEqual(torch.xpud.current_stream().stream_id, 0)
        stream.synchronize()
        self.assertTrue(stream.query())
        self.assertTrue(event.query())

    def test_a_stream_context_restores_the_stream(self):
        stream, inner = torch.xpud.Stream(), torch.xpud.Stream()
        context = torch.xpud.stream(stream)
        self.assertIsInstance(context, torch.xpud.StreamContext)
        self.assertEqual(context.stream, stream)
        with self.assertRaisesRegex(KeyError, "left"), context, torch.xpud.StreamContext(inner), torch.xpud.StreamContext(None):
            self.assertEqual(torch.xpud.current_stream(), inner)
            raise KeyError("left")
        self.assertEqual(torch.xpud.current_stream(), torch.xpud.default_stream())

    def test_torch_stream_and_accelerator(self):
        stream = torch.Stream(device="xpud")
        with stream:
            a = torch.ones(8, device="xpud") * 3
        torch.accelerator.current_stream().wait_stream(stream)
        self.assertEqual(a.sum().item(), 24)
        torch.accelerator.synchronize()

    def test_events_measure_time(self):
        start, end = torch.xpud.Event(enable_timing=True), torch.xpud.Event(enable_timing=True)
        a = torch.randn(256, 256, device="xpud")
        start.record()
        for _ in range(20):
            a = a @ a * 0.01
        end.record()
        end.synchronize()
        self.assertGreater(start.elapsed_time(end), 0)

    def test_other_threads_may_compute(self):
        results = []

        def work(k):
            a = torch.full((32, 32), float(k), device="xpud")
            results.append((k, (a @ a).sum().item()))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(results), [(k, 32.0 * 32 * 32 * k * k) for k in range(4)])

    def test_backward_runs_on_its_own_thread(self):
        seen = []
        a = torch.ones(4, device="xpud", requires_grad=True)
        b = a * 2
        b.register_hook(lambda gradient: seen.append(threading.get_ident()))
        b.sum().backward()
        self.assertEqual(a.grad.tolist(), [2.0] * 4)
        self.assertNotEqual(seen[0], threading.get_ident())


class RandomTest(unittest.TestCase):
    def test_seed_repeats(self):
        torch.manual_seed(7)
        a = torch.rand(100, device="xpud")
        b = torch.rand(100, device="xpud")
        torch.manual_seed(7)
        torch.testing.assert_close(torch.rand(100, device="xpud"), a)
        self.assertFalse(torch.equal(a, b))

    def test_state_is_saved_and_restored(self):
        state = torch.xpud.get_rng_state()
        a = torch.randn(10, device="xpud")
        torch.xpud.set_rng_state(state)
        torch.testing.assert_close(torch.randn(10, device="xpud"), a)
        with torch.random.fork_rng(devices=[0], device_type="xpud"):
            torch.manual_seed(1)
        torch.xpud.set_rng_state(state)
        torch.testing.assert_close(torch.randn(10, device="xpud"), a)

    def test_generators_are_independent(self):
        g = torch.Generator(device="xpud").manual_seed(3)
        a = torch.rand(10, device="xpud", generator=g)
        torch.rand(10, device="xpud")
        g.manual_seed(3)
        torch.testing.assert_close(torch.rand(10, device="xpud", generator=g), a)

    def test_distributions(self):
        torch.manual_seed(0)
        n = 200_000
        u = torch.rand(n, device="xpud")
        self.assertGreaterEqual(u.min().item(), 0)
        self.assertLess(u.max().item(), 1)
        self.assertAlmostEqual(u.mean().item(), 0.5, delta=0.01)
        g = torch.randn(n, device="xpud") * 3 + 1
        self.assertAlmostEqual(g.mean().item(), 1, delta=0.05)
        self.assertAlmostEqual(g.std().item(), 3, delta=0.05)
        b = torch.empty(n, device="xpud").bernoulli_(0.3)
        self.assertAlmostEqual(b.mean().item(), 0.3, delta=0.01)
        i = torch.randint(-5, 5, (n,), device="xpud")
        self.assertEqual((i.min().item(), i.max().item()), (-5, 4))
        e = torch.empty(n, device="xpud").exponential_(2.0)
        self.assertAlmostEqual(e.mean().item(), 0.5, delta=0.01)
        self.assertGreaterEqual(e.min().item(), 0)
        d = torch.nn.functional.dropout(torch.ones(n, device="xpud"), 0.25)
        self.assertAlmostEqual((d == 0).float().mean().item(), 0.25, delta=0.01)
        self.assertAlmostEqual(d.mean().item(), 1.0, delta=0.01)


class SaveTest(unittest.TestCase):
    def test_save_and_load(self):
        value = {"a": torch.randn(3, 4, device="xpud"), "b": torch.arange(4, device="xpud")[1:]}
        file = io.BytesIO()
        torch.save(value, file)
        for location, kind in ((None, "xpud"), ("cpu", "cpu"), ("xpud:0", "xpud")):
            file.seek(0)
            loaded = torch.load(file, map_location=location)
            self.assertEqual(loaded["a"].device.type, kind)
            torch.testing.assert_close(loaded["a"].cpu(), value["a"].cpu())
            torch.testing.assert_close(loaded["b"].cpu(), value["b"].cpu())

    def test_pickle_and_deepcopy(self):
        model = torch.nn.Linear(3, 2).to("xpud")
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            self.assertEqual(other.weight.device.type, "xpud")
            torch.testing.assert_close(other.weight, model.weight)
            self.assertNotEqual(other.weight.data_ptr(), model.weight.data_ptr())


class AutocastTest(unittest.TestCase):
    def test_matmul_runs_in_lower_precision(self):
        a = torch.randn(8, 8, device="xpud")
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("xpud", dtype=dtype):
                self.assertEqual((a @ a).dtype, dtype)
                self.assertEqual(torch.nn.functional.softmax(a @ a, dim=0).dtype, torch.float32)
        self.assertEqual((a @ a).dtype, torch.float32)


class ProcessTest(unittest.TestCase):
    def test_forked_child_is_refused(self):
        program = """
            import os, torch, torch_xpud
            a = torch.ones(4, device="xpud")
            pid = os.fork()
            if pid == 0:
                try:
                    torch.ones(2, device="xpud")
                except RuntimeError as error:
                    del a
                    os._exit(0 if "Cannot re-initialize XPUD in forked subprocess" in str(error) else 1)
                os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert a.sum().item() == 4
        """
        run(program)

    def test_data_loader_workers_that_do_not_touch_the_device(self):
        program = """
            import torch, torch_xpud
            a = torch.ones(4, device="xpud")
            data = torch.utils.data.TensorDataset(torch.arange(32.0))
            total = sum(batch.to("xpud").sum().item() for (batch,) in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2))
            assert total == 496, total
        """
        run(program)

    def test_import_torch_is_enough(self):
        if not any(e.name == "torch_xpud" for e in __import__("importlib.metadata").metadata.entry_points(group="torch.backends")):
            self.skipTest("torch_xpud is on the path but not installed: see sdk/torch/python/install.py")
        run("import torch; assert torch.ones(2, device='xpud').sum().item() == 2")

    def test_import_does_not_connect(self):
        run("import torch, torch_xpud; assert not torch.xpud.is_initialized(); torch.manual_seed(1); assert not torch.xpud.is_initialized()")

    def test_null_device_computes_nothing(self):
        run("import torch, torch_xpud; assert (torch.ones(2, device='xpud') + 1).sum().item() == 0", XPUD_NULL_DEVICE="1")


class ErrorTest(unittest.TestCase):
    def test_fallback_warns_once_and_names_the_operator(self):
        program = """
            import warnings, torch, torch_xpud
            a = torch.randn(4, 4, device="xpud")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                first = torch.linalg.eigvalsh(a)
                torch.linalg.eigvalsh(a)
            named = [w for w in caught if "aten::_linalg_eigh" in str(w.message) or "aten::linalg_eigvalsh" in str(w.message)]
            assert len(named) == 1, [str(w.message) for w in caught]
            torch.testing.assert_close(first.cpu(), torch.linalg.eigvalsh(a.cpu()))
        """
        run(program)

    def test_fallback_can_be_refused(self):
        program = """
            import torch, torch_xpud
            try:
                torch.linalg.eigvalsh(torch.eye(4, device="xpud"))
            except NotImplementedError as error:
                assert "aten::_linalg_eigh" in str(error) and "Float" in str(error), error
            else:
                raise AssertionError("no error")
        """
        run(program, XPUD_FALLBACK="error")

    def test_shapes_that_do_not_fit_are_refused_at_once(self):
        a = torch.ones(3, 4, device="xpud")
        for wrong in (lambda: a @ a, lambda: a + torch.ones(3, device="xpud"), lambda: torch.cat([a, torch.ones(3, 5, device="xpud")])):
            with self.assertRaises(RuntimeError):
                wrong()

    def test_bad_index_raises_at_the_next_sync(self):
        weight = torch.randn(5, 3, device="xpud")
        with self.assertRaises(IndexError):
            torch.nn.functional.embedding(torch.tensor([1, 9], device="xpud"), weight)
            torch.xpud.synchronize()
        self.assertEqual(weight.sum().shape, ())
        torch.xpud.synchronize()

    def test_out_of_memory(self):
        held = torch.empty(3 << 20, dtype=torch.uint8, device="xpud")
        before = torch.xpud.memory_stats()["num_ooms"]
        for asked, words in ((1 << 44, "16.00 TiB"), (1 << 46, "64.00 TiB")):
            with self.assertRaises(torch.OutOfMemoryError) as raised:
                torch.empty(asked, dtype=torch.uint8, device="xpud")
            self.assertRegex(str(raised.exception),
                             rf"^XPUD out of memory\. Tried to allocate {words}\. Device 0 has a total capacity of [\d.]+ .iB; "
                             r"of the [\d.]+ .iB that (this user's|all) processes (may hold|share), [\d.]+ .iB is in use and [\d.]+ .iB is free\.$")
        self.assertEqual(torch.xpud.memory_stats()["num_ooms"], before + 2)
        self.assertEqual(torch.ones(3, device="xpud").sum().item(), 3)
        del held

    def test_running_out_of_streams_or_timed_events_is_not_out_of_memory(self):
        with self.assertRaises(RuntimeError) as raised:
            events = []
            for _ in range(100_000):
                events.append(torch.Event(device="xpud", enable_timing=True))
                events[-1].record()
        self.assertNotIsInstance(raised.exception, torch.OutOfMemoryError)
        self.assertIn("at most", str(raised.exception))

    def test_other_device_is_refused(self):
        with self.assertRaises(RuntimeError):
            torch.ones(3, device="xpud") + torch.ones(3)
        self.assertEqual((torch.ones(3, device="xpud") + torch.tensor(2.0)).sum().item(), 9)

    def test_ctrl_c_ends_a_wait(self):
        program = """
            import os, signal, threading, time, torch, torch_xpud
            a = torch.randn(1024, 1024, device="xpud")
            torch.xpud.synchronize()
            threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            start = time.time()
            try:
                while time.time() - start < 30:
                    for _ in range(400):
                        b = a @ a
                    b.sum().item()
            except KeyboardInterrupt:
                print("after", time.time() - start)
        """
        seconds = float(run(program).split()[1])
        self.assertLess(seconds, 4.0)


if __name__ == "__main__":
    unittest.main()
