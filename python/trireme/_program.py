"""The console script ``trireme``: hands over to the program that the package carries."""

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path


def _stop(message):
    print(f"trireme: {message}", file=sys.stderr)
    sys.exit(2)


def _torch_folder():
    """The installed torch's folder, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        _stop("torch is not installed beside trireme: pip install torch")
    return Path(spec.submodule_search_locations[0])


def main():
    package = Path(__file__).resolve().parent
    program = package / "bin" / "trireme"
    if not program.exists():
        _stop(f"{package} carries no program: install it with `pip install .`, or run build/release/trireme")
    torch = _torch_folder()
    from trireme._build import TORCH_VERSION

    installed = importlib.metadata.version("torch").partition("+")[0]
    if installed != TORCH_VERSION:
        _stop(
            f"built against torch {TORCH_VERSION}, but torch {installed} is installed: reinstall with "
            "`pip install --no-build-isolation .`, which builds against the installed one"
        )
    if torch.parent != package.parent:
        # The program looks for torch beside its own package; this one lies in another site folder.
        libraries = [str(torch / "lib"), os.environ.get("LD_LIBRARY_PATH")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
    os.execv(program, [str(program), *sys.argv[1:]])
