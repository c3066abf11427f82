"""Several processes on one device."""

import unittest

from harness import DaemonTest


class Sharing(DaemonTest):
    def test_two_processes_compute_on_one_device(self):
        code = ("import random\n"
                "a = torch.full((64, 64), float(sys.stdin.readline()), device='xpud')\n"
                "for _ in range(200): a = a * 2 / 2 + 1\n"
                "say(a.cpu().unique().tolist())\n"
                "sys.stdin.readline()\n")
        clients = [self.client(code) for _ in range(2)]
        for value, client in enumerate(clients):
            client.tell(str(value * 1000))
        self.assertEqual([client.hear() for client in clients], ["[200.0]", "[1200.0]"])
        self.assertEqual({s["pid"] for s in self.daemon.sessions()}, {c.process.pid for c in clients})
        for client in clients:
            client.tell()
            status, _, err = client.finish()
            self.assertEqual((status, err), (0, ""))

    def test_sessions_and_their_memory_end_with_the_processes(self):
        client = self.client("t = torch.ones(1 << 20, device='xpud'); torch.xpud.synchronize(); say('there'); sys.stdin.readline()")
        self.assertEqual(client.hear(), "there")
        self.assertGreaterEqual(self.memory_of(client.process.pid), 4 << 20)
        client.tell()
        self.assertEqual(client.finish()[0], 0)
        self.assertEqual(self.daemon.sessions(), [])
        self.assertEqual(self.daemon.devices()[0]["memory_used_bytes"], 0)

    def test_a_quota_is_met_where_the_user_allocates(self):
        holder = self.client("a = torch.ones(1 << 20, device='xpud'); torch.xpud.synchronize(); say('there')\n"
                             "for _ in range(2): sys.stdin.readline(); say(a.sum().item())")
        self.assertEqual(holder.hear(), "there")
        client = self.client("torch.ones(1, device='xpud'); say('there'); sys.stdin.readline()\n"
                             "held = torch.zeros(48 << 20, dtype=torch.uint8, device='xpud')\n"
                             "try: torch.zeros(48 << 20, dtype=torch.uint8, device='xpud')\n"
                             "except torch.OutOfMemoryError as error: say(error)\n"
                             "torch.xpud.synchronize(); del held\n"
                             "say(torch.ones(40 << 20, dtype=torch.uint8, device='xpud').sum().item())")
        self.assertEqual(client.hear(), "there")
        session = next(s["id"] for s in self.daemon.sessions() if s["pid"] == client.process.pid)
        self.daemon.ask("quota", f"session:{session}", "64MiB")
        client.tell()
        self.assertRegex(client.hear(), r"^XPUD out of memory\. Tried to allocate 48\.00 MiB\. Device 0 has a total capacity of [\d.]+ .iB; of the "
                                        r"64\.00 MiB that this process may hold, [\d.]+ MiB is in use and [\d.]+ MiB is free\.$")
        self.assertEqual(client.hear(), str(40 << 20))
        self.assertEqual(client.finish()[0], 0)
        for _ in range(2):
            holder.tell()
            self.assertEqual(holder.hear(), str(float(1 << 20)))
        self.assertEqual(holder.finish()[0], 0)

    def test_a_device_that_others_have_filled_says_so(self):
        total = self.daemon.devices()[0]["memory_total_bytes"]
        take = f"x = torch.empty({total * 3 // 5}, dtype=torch.uint8, device='xpud'); torch.xpud.synchronize()"
        holder = self.client(f"{take}; say('holds'); sys.stdin.readline()")
        self.assertEqual(holder.hear(), "holds")
        late = self.client(f"try: {take}\nexcept torch.OutOfMemoryError as error: say(error)")
        self.assertRegex(late.hear(), r"^XPUD out of memory\. Tried to allocate [\d.]+ .iB\. Device 0 has a total capacity of [\d.]+ .iB; "
                                      r"of the [\d.]+ .iB that this user's processes may hold, [\d.]+ .iB is in use and [\d.]+ .iB is free\.")
        self.assertEqual(late.finish()[0], 0)


if __name__ == "__main__":
    unittest.main()
