"""Returns how much of the first GPU's memory all programs use, from NVML."""

import ctypes


class _Memory(ctypes.Structure):  # nvmlMemory_t
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class GpuMemory:
    def __init__(self):
        """Raises OSError if there is no NVML or no GPU."""
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        self._must(self._nvml.nvmlInit_v2())
        self._must(self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)))

    def used_mib(self) -> float:
        memory = _Memory()
        self._must(self._nvml.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory)))
        return memory.used / 2**20

    @staticmethod
    def _must(result: int) -> None:
        if result != 0:
            raise OSError(f"NVML answers {result}")
