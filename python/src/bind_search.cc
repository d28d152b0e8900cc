// trireme.search._search: one call that runs a search, with a Python function as profiler if wanted. The
// package's face is python/trireme/search/__init__.py.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "trireme/base/error.h"
#include "trireme/deploy/job.h"
#include "trireme/deploy/outcome.h"

namespace py = pybind11;
using namespace trireme;
using namespace trireme::deploy;

namespace {

// Calls probe(instance, nodes, needed) -> samples/s, or a dict with samples_per_s and, if wanted, hours,
// relative_sd, samples_trained, error. An exception of the function is a probe that failed.
class PythonProfiler : public Profiler {
 public:
  explicit PythonProfiler(py::function probe) : probe_(std::move(probe)) {}
  Measurement measure(const ProbeRequest& request) override {
    const py::gil_scoped_acquire gil;
    Measurement m{.hours = request.planned_hours};
    try {
      const py::object answer =
          probe_(request.deployment.instance, request.deployment.nodes, request.needed_samples_per_s);
      if (py::isinstance<py::dict>(answer)) {
        take(answer.cast<py::dict>(), m);
      } else {
        m.samples_per_s = answer.cast<double>();
      }
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) throw;
      m.error = error.what();
    } catch (const py::cast_error&) {
      m.error = "the probe returned neither a number nor a dict with samples_per_s";
    }
    return m;
  }

 private:
  static void take(const py::dict& answer, Measurement& m) {
    const auto get = [&](const char* key, auto& field) {
      using T = std::remove_reference_t<decltype(field)>;
      if (answer.contains(key)) field = answer[key].cast<T>();
    };
    get("samples_per_s", m.samples_per_s);
    get("relative_sd", m.relative_sd);
    get("hours", m.hours);
    get("samples_trained", m.samples_trained);
    get("ended_early", m.ended_early);
    get("error", m.error);
  }
  py::function probe_;
};

std::string run(const std::string& toml, const std::string& folder, const std::vector<std::string>& sets,
                const std::string& state, const py::object& probe, const py::object& explain) {
  const auto job = job_from(toml, "the job", folder, sets);
  const auto setup = job.setup();
  std::unique_ptr<ProbeLog> log = std::make_unique<MemoryLog>();
  if (!state.empty()) log = std::make_unique<StateFile>(state, job.digest);
  const auto processes = system_processes();
  std::unique_ptr<Profiler> profiler;
  if (probe.is_none()) {
    profiler = profiler_of(job, *processes, steady_clock());
  } else {
    profiler = std::make_unique<PythonProfiler>(probe.cast<py::function>());
  }
  Observer observer;
  if (!explain.is_none())
    observer.decided = [&](const Snapshot& snapshot, const Decision& decision) {
      const py::gil_scoped_acquire gil;
      explain(to_text(snapshot, decision));
    };
  const py::gil_scoped_release release;
  const auto outcome = job.options.search.method == "oracle" && job.table
                           ? oracle(setup, *job.table)
                           : run_search(setup, *profiler, *log, observer);
  return to_json(outcome, setup, job.options.search.method);
}

}  // namespace

PYBIND11_MODULE(_search, m) {
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const Error& error) {
      PyErr_SetString(exit_code(error.code()) == 2 ? PyExc_ValueError : PyExc_RuntimeError, error.what());
    }
  });
  m.def("run", &run, py::arg("toml"), py::arg("folder"), py::arg("sets"), py::arg("state"), py::arg("probe"),
        py::arg("explain"));
}
