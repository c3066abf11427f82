"""The Python code that calls loop kernels and operators."""

import dataclasses
from typing import Any

from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen, WrapperLine


@dataclasses.dataclass
class LoopKernelLine(WrapperLine):
    """A call of a loop kernel."""

    name: str
    outputs: list[str]
    inputs: list[str]
    sizes: list[str]

    def codegen(self, code: Any) -> None:
        code.writeline(f"{self.name}([{', '.join(self.outputs)}], [{', '.join(self.inputs)}], [{', '.join(self.sizes)}])")


_ASSERTION = "assert_size_stride("


class _LoopKernelCalls:
    """What the wrapper of a graph and those of its subgraphs add to Inductor's."""

    def call_loop_kernel(self, name, kernel):
        sizes = [self.codegen_python_sizevar(size) for size in kernel.sizes]
        outputs = [operand.argument for operand in kernel.outputs()]
        inputs = [f"{operand.argument}.item()" if operand.is_cpu_tensor else operand.argument for operand in kernel.inputs()]
        self.writeline(LoopKernelLine(name, outputs, inputs, sizes))

    def make_allocation(self, name, device, dtype, shape, stride, allocation_shape=None, is_pinned=False):
        if device.type != "xpud":
            return super().make_allocation(name, device, dtype, shape, stride, allocation_shape, is_pinned)
        size, strides = self.codegen_python_shape_tuple(allocation_shape or shape), self.codegen_python_shape_tuple(stride)
        made = f"{name} = empty_strided({size}, {strides}, device={str(device)!r}, dtype={dtype})"
        wanted = self.codegen_python_shape_tuple(shape)
        return made if wanted == size else f"{made}.as_strided({wanted}, {strides})"

    def write_assert_size_stride(self, name, size, stride, op_name):
        """An operator without a kernel on the device has the layout of the CPU's kernel, which can differ from the fake tensor's. Later code uses
        the fake tensor's, so the result is copied."""
        if op_name == "input":
            super().write_assert_size_stride(name, size, stride, op_name)
        else:
            self.writeline(f"{name} = with_layout({name}, {size}, {stride}, {op_name!r})")


    def writeline(self, line):
        if isinstance(line, str) and line.startswith(_ASSERTION):  # torch 2.11, which writes those of operators itself
            rest = line.removeprefix(_ASSERTION)
            line = f"{rest.split(',', 1)[0]} = with_layout({rest}"
        super().writeline(line)


class Wrapper(_LoopKernelCalls, PythonWrapperCodegen):
    """Inductor's wrapper, with calls of loop kernels."""

    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        if is_subgraph:
            return SubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return Wrapper()

    def write_header(self):
        super().write_header()
        self.imports.writeline("from torch_xpud.inductor.runtime import loop_kernel, with_layout")


class SubgraphWrapper(_LoopKernelCalls, SubgraphPythonWrapperCodegen):
    """The wrapper of a subgraph, whose kernels are defined by the outermost wrapper."""
