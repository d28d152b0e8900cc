"""Trireme: distributed training over ordinary networks.

Submodules load on first use, so that ``import trireme`` is quick and needs nothing that the part in use does not need
(``trireme.stats`` works where torch is not installed).
"""

import importlib
import importlib.util

__version__ = "0.1.0"

# The public submodules. One that this build does not carry is simply not there: see __getattr__.
_PARTS = ("ddp", "fsdp", "codec", "export", "stats", "plan", "search")


def _is_built(part):
    return importlib.util.find_spec(f"{__name__}.{part}") is not None


def __getattr__(name):
    if name not in _PARTS:
        raise AttributeError(f"module 'trireme' has no attribute '{name}'")
    if not _is_built(name):
        built = ", ".join(part for part in _PARTS if _is_built(part))
        raise AttributeError(f"trireme.{name} is not part of trireme {__version__} (this build has: {built})")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__():
    return sorted([*globals(), *(part for part in _PARTS if _is_built(part))])
