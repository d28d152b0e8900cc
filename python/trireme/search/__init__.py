"""Which machines, how many, before a deadline and within a budget. The package itself is the function:

    import trireme
    result = trireme.search("job.toml")                                  # a job file, as `trireme search` takes it
    result = trireme.search("job.toml", goal={"budget_usd": 7})          # with keys changed
    result = trireme.search(job={"samples": 1e7}, goal={"scenario": "budget", "budget_usd": 50},
                            space={"offers": "offers.csv", "nodes": [1, 2, 4, 8]}, probe=measure)

`measure(instance, nodes)` returns samples per second, or a dict with `samples_per_s` and, if known, `hours` (charged; else the
planned length), `relative_sd`, `samples_trained`, `error`; an exception is a probe that failed. The result is the dict that
`trireme search --json` prints (docs/reference/search.md). Wrong input raises ValueError. Needs neither torch nor NumPy.
"""

import inspect
import json
import sys
import types
from pathlib import Path

try:
    from trireme.search import _search
except ImportError as error:  # the extension is built by `make build` or comes with the wheel
    raise ImportError(f"trireme.search is not built for this Python: run `make build` ({error})") from error

_SECTIONS = ("job", "goal", "space", "probe", "search")


def _toml(value):
    """A TOML value; JSON's spelling serves for what may stand here."""
    return json.dumps(str(value) if isinstance(value, Path) else value)


def _document(sections):
    return "".join(f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items())
                   for name, keys in sections.items())


def _with_needed(measure):
    """The function as the extension calls it: a third parameter, if it takes one, is the speed that would matter."""
    try:
        takes = len(inspect.signature(measure).parameters)
    except ValueError:
        takes = 2
    return measure if takes >= 3 else lambda instance, nodes, needed: measure(instance, nodes)


def search(job, *, state=None, explain=False, probe=None, **sections):
    """Runs a search and returns its result as a dict.

    job: path of a JOB.toml, or the keys of its section [job]. Other sections by name, as dicts; `probe` is one, or a function.
    state: file that remembers probes, so that a search goes on where it was; None: in memory only.
    explain: True prints what each decision weighed to standard error; a function gets the text instead.
    """
    measure = None
    if callable(probe):
        measure = _with_needed(probe)
        probe = {"kind": "function", "minutes": getattr(probe, "minutes", "10 + floor((n-1)/3)")}
    if probe is not None:
        sections["probe"] = probe
    unknown = sorted(set(sections) - set(_SECTIONS))
    if unknown:
        raise ValueError(f"unknown section {unknown[0]}; there are {', '.join(_SECTIONS)}")
    if isinstance(job, dict):
        toml, folder = _document({"job": job, **sections}), Path.cwd()
        sets = []
    else:
        toml, folder = Path(job).read_text(encoding="utf-8"), Path(job).resolve().parent
        sets = [f"{name}.{key}={_toml(value)}" for name, keys in sections.items() for key, value in keys.items()]
    tell = explain if callable(explain) else (lambda text: sys.stderr.write(text)) if explain else None
    return json.loads(_search.run(toml, str(folder), sets, str(state or ""), measure, tell))


class _CallableModule(types.ModuleType):
    def __call__(self, *args, **kwargs):
        return search(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
__all__ = ["search"]
