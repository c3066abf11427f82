"""Upload and download of 64 MiB between existing host and device memory, beside one thread's memcpy."""

import ctypes

import rows
import torch

BYTES = 64 << 20


def main() -> None:
    host, other = torch.rand(BYTES // 4), torch.empty(BYTES // 4)
    device = host.to("xpud")

    def memcpy():
        ctypes.memmove(other.data_ptr(), host.data_ptr(), BYTES)

    def upload():
        device.copy_(host)
        torch.xpud.synchronize()

    def download():
        other.copy_(device)

    memcpy(), upload(), download()
    assert torch.equal(host, other), "what came back is not what was sent"
    times = rows.interleaved({"memcpy": memcpy, "upload": upload, "download": download}, 3 if rows.SMOKE else 41)
    for name in ("upload", "download"):
        rows.emit(f"{name} 64 MiB", BYTES / times[name] / 1e9, "GB/s", "memcpy", BYTES / times["memcpy"] / 1e9, "ratio >= 1.0")


if __name__ == "__main__":
    main()
