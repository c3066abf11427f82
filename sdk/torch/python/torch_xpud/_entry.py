"""The function that PyTorch calls at the end of `import torch` (entry point group `torch.backends`)."""


def load():
    import torch_xpud  # noqa: F401
