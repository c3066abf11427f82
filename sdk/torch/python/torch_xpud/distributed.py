"""torch.distributed on xpud, for one process. There are no collectives between processes yet; a group of several processes is refused.

With one process each collective is a copy, or nothing. So programs that always create a process group run: DistributedDataParallel, gathering of
metrics, device meshes of size 1.
"""

import functools

import torch
import torch.distributed as dist

REFUSAL = ("xpud has no collectives between processes yet (this group has {size}). Start one process; or use CPU tensors and "
           "init_process_group(backend='gloo')")


@functools.cache
def _group_class():
    """Defines the class. Its base exists only if PyTorch was built with torch.distributed."""

    class Finished(dist.Work):
        """The work of a collective that is complete in the order of the current stream."""

        def __init__(self, result):
            super().__init__()
            self._future = torch.futures.Future()
            self._future.set_result(result)

        def wait(self, timeout=None):
            return True

        def is_completed(self):
            return True

        def get_future(self):
            return self._future

    class OneProcess(dist.ProcessGroup):
        """The process group of a single process, for tensors on every device."""

        group_name = group_desc = "undefined"

        def _set_group_name(self, name):
            self.group_name = name

        def _set_group_desc(self, description):
            self.group_desc = description

        # The same for c10d in C++, under its names.

        def getBackendName(self):  # noqa: N802
            return "xpud"

        def getGroupName(self):  # noqa: N802
            return self.group_name

        def getGroupDesc(self):  # noqa: N802
            return self.group_desc

        # init_process_group(device_id=...) asks the group's back end for a device whether it may be split.

        supports_splitting = False

        def _get_backend(self, device):
            return self

        # What is reduced or sent to all is already there.

        def allreduce(self, tensors, opts=None):
            return Finished(tensors)

        allreduce_coalesced = broadcast = reduce = allreduce

        def barrier(self, opts=None):
            torch.xpud.synchronize()
            return Finished([])

        # The one process's part is copied. Outputs are lists with one element for each process.

        def allgather(self, outputs, inputs, opts=None):
            for (output,), source in zip(outputs, inputs):
                output.copy_(source)
            return Finished(outputs)

        def gather(self, outputs, inputs, opts=None):
            return self.allgather(outputs, inputs)

        def allgather_coalesced(self, outputs, inputs, opts=None):
            for output, source in zip(outputs[0], inputs):
                output.copy_(source)
            return Finished(outputs)

        def scatter(self, outputs, inputs, opts=None):
            for output, (source,) in zip(outputs, inputs):
                output.copy_(source)
            return Finished(outputs)

        reduce_scatter = scatter

        def alltoall(self, outputs, inputs, opts=None):
            for output, source in zip(outputs, inputs):
                output.copy_(source)
            return Finished(outputs)

        def all_gather_single(self, output, source, opts=None):
            output.copy_(source.view_as(output))
            return Finished([output])

        reduce_scatter_single = _allgather_base = _reduce_scatter_base = all_gather_single

        def all_to_all_single(self, output, source, output_sizes=None, input_sizes=None, opts=None):
            output.copy_(source)
            return Finished([output])

        alltoall_base = all_to_all_single

        def all_gather_single_coalesced(self, outputs, inputs, opts=None):
            for output, source in zip(outputs, inputs):
                output.copy_(source.view_as(output))
            return Finished(outputs)

        allgather_into_tensor_coalesced = reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced = all_gather_single_coalesced

    return OneProcess


def _create(store, rank, size, timeout):
    if size != 1:
        raise NotImplementedError(REFUSAL.format(size=size))
    return _group_class()(rank, size)


def install():
    """Registers the backend "xpud", which init_process_group() then chooses for this accelerator. Does nothing if it is registered."""
    if dist.is_available() and "xpud" not in dist.Backend.backend_list:
        dist.Backend.register_backend("xpud", _create, devices=["xpud"])
