// `trireme search`: which machines, how many, before the deadline and within the budget.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "stop_signals.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/process.h"
#include "trireme/deploy/job.h"
#include "trireme/deploy/outcome.h"

namespace trireme::app {
namespace {

namespace fs = std::filesystem;
using namespace trireme::deploy;

struct Arguments {
  std::string job, state;
  std::vector<std::string> sets;
  bool json = false, explain = false, help_job = false;
};

constexpr const char* kExample =
    "Example (replays measured speeds of TensorFlow on AWS):\n"
    "  trireme search data/deploy/cnn-60000.toml --explain\n"
    "The state lies in JOB.state: a search that is cut off goes on where it was, and pays no probe twice.\n"
    "Every key of JOB.toml: trireme search --help-job; guide: docs/guides/search.md";

Observer observer_of(const Arguments& a) {
  Observer observer;
  if (a.explain)
    observer.decided = [](const Snapshot& snapshot, const Decision& decision) {
      std::fputs(to_text(snapshot, decision).c_str(), stderr);
    };
  observer.probed = [](const Probe& p) {
    if (p.failed()) log::warning(cat(to_text(p.deployment), ": the probe failed: ", p.error));
  };
  return observer;
}

int print_job_help() {
  JobOptions options;
  OptionList list;
  options.list(list);
  std::fputs(list.help_text().c_str(), stdout);
  return 0;
}

int run(const Arguments& a) {
  if (a.help_job) return print_job_help();
  if (a.job.empty()) fail(ErrorCode::usage, "search needs a JOB.toml; see trireme search --help");
  const auto job = read_job(a.job, a.sets);
  const auto setup = job.setup();
  Outcome outcome;
  if (job.options.search.method == "oracle") {
    if (!job.table) fail(ErrorCode::usage, "search.method = \"oracle\" needs probe.kind = \"replay\"");
    outcome = oracle(setup, *job.table);
  } else {
    StateFile state(a.state.empty() ? fs::path(a.job).replace_extension(".state") : fs::path(a.state),
                    job.digest);
    const auto processes = system_processes();
    const StopWatch watch([&](int) {
      processes->cancel();  // running probes are stopped, written down and charged for the time they ran
      return job.options.probe.kind != "replay";
    });
    const auto profiler = profiler_of(job, *processes, steady_clock());
    outcome = run_search(setup, *profiler, state, observer_of(a));
  }
  std::fputs((a.json ? to_json(outcome, setup, job.options.search.method) : to_table(outcome, setup)).c_str(),
             stdout);
  return 0;
}

}  // namespace

std::function<int()> setup_search(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  app.add_option("job", a->job, "job file")->type_name("JOB.toml");
  app.add_option("--set", a->sets, "change one key, e.g. --set goal.budget_usd=7; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->expected(1)
      ->take_all();
  app.add_option("--state", a->state, "where probes are remembered; default JOB.state beside the job")
      ->type_name("FILE");
  app.add_flag("--json", a->json, "print one JSON object");
  app.add_flag("--explain", a->explain, "tell on standard error what each decision weighed");
  app.add_flag("--help-job", a->help_job, "list every key of JOB.toml with default, unit and range");
  app.footer(kExample);
  return [a] { return run(*a); };
}

}  // namespace trireme::app
