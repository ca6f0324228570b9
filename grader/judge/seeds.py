"""Where inputs come from: a generator for each run, derived from one seed, so that a verdict can be replayed."""

import hashlib

import torch


def generator(seed: str, *names: str, device: str = "cpu") -> torch.Generator:
    """A generator for the run called ``names`` (kernel, shape, family) under ``seed``."""
    digest = hashlib.sha256("\n".join((seed, *names)).encode()).digest()
    return torch.Generator(device=device).manual_seed(int.from_bytes(digest[:7], "big"))
