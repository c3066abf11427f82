"""torch.xpud.random: the state of the devices' random number generators."""

import os

import torch

from . import _C
from .index import index_of


def manual_seed(seed):
    """Seeds the current device's generator."""
    _C.default_generator(torch._C._accelerator_getDeviceIndex()).manual_seed(int(seed))


def manual_seed_all(seed):
    _C.manual_seed_all(int(seed) & 0xFFFFFFFFFFFFFFFF)


def seed():
    _C.default_generator(torch._C._accelerator_getDeviceIndex()).seed()


def seed_all():
    _C.manual_seed_all(int.from_bytes(os.urandom(8), "little"))


def initial_seed():
    return _C.default_generator(torch._C._accelerator_getDeviceIndex()).initial_seed()


def get_rng_state(device="xpud"):
    return _C.default_generator(index_of(device)).get_state()


def set_rng_state(new_state, device="xpud"):
    _C.default_generator(index_of(device)).set_state(new_state.cpu())


def get_rng_state_all():
    return [get_rng_state(i) for i in range(torch._C._accelerator_hooks_device_count())]


def set_rng_state_all(new_states):
    for i, state in enumerate(new_states):
        set_rng_state(state, i)
