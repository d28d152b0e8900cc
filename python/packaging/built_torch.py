"""Dependencies of the package, as a scikit-build-core metadata provider.

LibTorch keeps no binary compatibility between versions, so the package needs exactly the torch that it was built against:
the pinned one in an isolated build, the installed one with --no-build-isolation.
"""

import importlib.metadata


def dynamic_metadata(field, settings=None, project=None):
    if field != "dependencies":
        raise ValueError(f"only 'dependencies' comes from here, not '{field}'")
    return ["torch==" + importlib.metadata.version("torch").partition("+")[0]]
