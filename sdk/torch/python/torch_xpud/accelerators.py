"""Which other accelerator a process could use. PyTorch has one for each process, and xpud becomes it when it is registered."""

import ctypes
import pathlib

import torch

_INTEL = "0x8086"


def _has_cuda():
    """Asks without initialising CUDA where NVIDIA's management library is there; forked children can then use CUDA."""
    if not torch.backends.cuda.is_built():
        return False
    if torch.version.hip is None:
        try:
            ctypes.CDLL("libcuda.so.1")  # without a driver, torch.cuda would say so on standard error
        except OSError:
            return False
    return torch.cuda.device_count() > 0


def _has_xpu():
    """Looks for the devices' files: asking torch.xpu would initialise SYCL, and children could not use it after a fork."""
    if not torch.xpu._is_compiled():
        return False
    vendors = pathlib.Path("/sys/class/drm").glob("renderD*/device/vendor")
    return any(vendor.read_text().strip() == _INTEL for vendor in vendors) or pathlib.Path("/dev/dxg").exists()


def usable_beside():
    """Returns "cuda", "xpu" or "mps" if this PyTorch is built for it and the machine has such a device that this process may use; else None."""
    for name, has_devices in (("cuda", _has_cuda), ("xpu", _has_xpu), ("mps", torch.backends.mps.is_available)):
        if has_devices():
            return name
    return None
