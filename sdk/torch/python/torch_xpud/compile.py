"""Connects torch.compile to xpud's backend, without importing TorchDynamo before it is needed.

torch.compile's default backend is Inductor. It needs xpud's back end and settings for graphs with xpud tensors, and for them alone. torch.compile
wraps Inductor in an object, and Dynamo calls that object once for each captured graph, with the graph and its fake inputs. This is the narrowest
place to intercept graphs, so the wrapper is patched. A graph without xpud tensors goes to the original method, so Inductor compiles CPU graphs as
before. Patching `compile_fx` itself would import Inductor or need an import hook; replacing Dynamo's default backend would lose `mode` and `options`.

`import torch` does not import torch._dynamo. torch.compile does, and constructs one of two wrappers. Constructing it registers the backend's
name and the device interface.
"""

import functools

import torch

from . import imports


def _register_first(construct):
    @functools.wraps(construct)
    def construct_wrapper(self, *args, **kwargs):
        from . import dynamo

        dynamo.register()
        construct(self, *args, **kwargs)

    return construct_wrapper


def _route(compile_graph):
    @functools.wraps(compile_graph)
    def compile_on_its_device(self, graph, inputs, **kwargs):
        from . import dynamo

        if dynamo.uses_xpud(graph, inputs):
            patches = {**self.config, **(kwargs.pop("config_patches", None) or {})}
            if getattr(self, "name", None) is not None:
                kwargs["compile_region_name"] = self.name
            return dynamo.compile_graph(graph, inputs, patches, **kwargs)
        return compile_graph(self, graph, inputs, **kwargs)

    return compile_on_its_device


def _route_by_name(module):
    """Sends graphs with xpud tensors here if they come to the backend by its name, as by torch._dynamo.optimize("inductor")."""
    from torch._dynamo.backends import registry

    inductor = registry._COMPILER_FNS["inductor"]

    @functools.wraps(inductor)
    def compile_on_its_device(graph, inputs, **kwargs):
        from . import dynamo

        dynamo.register()
        if dynamo.uses_xpud(graph, inputs):
            return dynamo.compile_graph(graph, inputs, kwargs.pop("config_patches", None), **kwargs)
        return inductor(graph, inputs, **kwargs)

    registry._COMPILER_FNS["inductor"] = compile_on_its_device


def _refuse_ahead_of_time(module):
    """AOTInductor makes a library of machine code, for devices that it knows. Its own refusal is an assertion."""
    compile_aot = module.compile_fx_aot

    @functools.wraps(compile_aot)
    def compile_for_its_device(graph, inputs, *args, **kwargs):
        from . import dynamo

        if dynamo.uses_xpud(graph, inputs):
            raise NotImplementedError("AOTInductor does not compile for xpud. Use torch.compile; torch.compiler.save_cache_artifacts() keeps its results.")
        return compile_aot(graph, inputs, *args, **kwargs)

    module.compile_fx_aot = compile_for_its_device


def install():
    for wrapper in (torch._TorchCompileInductorWrapper, torch._TorchCompileWrapper):
        wrapper.__init__ = _register_first(wrapper.__init__)
    torch._TorchCompileInductorWrapper.__call__ = _route(torch._TorchCompileInductorWrapper.__call__)
    imports.when_imported("torch._dynamo.backends.inductor", _route_by_name)
    imports.when_imported("torch._inductor.compile_fx", _refuse_ahead_of_time)
