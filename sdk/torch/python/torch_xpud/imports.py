"""Runs functions when a module is imported, so that other packages can be adapted without importing them."""

import functools
import importlib.abc
import importlib.machinery
import sys
import warnings

_waiting = {}  # module name -> functions that are called with it


class _Finder(importlib.abc.MetaPathFinder):
    """Finds no modules itself. Asks the other finders, and extends the loader of a module for which functions wait."""

    def find_spec(self, name, path=None, target=None):
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                _extend(spec.loader, name)
                return spec
        return None


def _extend(loader, name):
    """Makes the loader call the waiting functions after it has executed the module. The loader keeps its type, which inspect and pkgutil ask for."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    @functools.wraps(execute)
    def exec_module(module):
        execute(module)
        _call(name, module)

    try:
        loader.exec_module = exec_module
    except AttributeError:  # a class shared by all built-in or frozen modules
        pass


class _Initializing(importlib.machinery.ModuleSpec):
    """The spec of a module that is being executed now: the one that imports torch. The import system clears `_initializing` at its end."""

    @property
    def _initializing(self):
        return self.__dict__.get("_initializing", False)

    @_initializing.setter
    def _initializing(self, value):
        self.__dict__["_initializing"] = value
        if not value and self.name in sys.modules:  # it is not there if it failed
            _call(self.name, sys.modules[self.name])


def _call(name, module):
    for function in _waiting.pop(name, ()):
        try:
            function(module)
        except Exception as error:  # the package works without this on every device but xpud
            version = getattr(sys.modules.get(name.partition(".")[0]), "__version__", "?")
            warnings.warn(f"torch_xpud could not adapt {name} (version {version}) to xpud: {type(error).__name__}: {error}", stacklevel=2)


def when_imported(name, function):
    """Calls `function(module)` as soon as the module `name` has been executed: now if it was imported before, otherwise before its importer continues.

    An exception of `function` becomes a warning. Does nothing if the module is never imported.
    """
    _waiting.setdefault(name, []).append(function)
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is None:
        return
    if not getattr(spec, "_initializing", False):
        _call(name, module)
    elif type(spec) is importlib.machinery.ModuleSpec:
        spec.__class__ = _Initializing



def install():
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
