#pragma once
// The loop of a search: policy decides, profiler measures, log remembers.
#include <functional>

#include "trireme/deploy/policy.h"
#include "trireme/deploy/profiler.h"
#include "trireme/deploy/state.h"

namespace trireme::deploy {

struct SearchSetup {
  const SearchSpace* space = nullptr;
  Goal goal;
  double samples = 0;
  int64_t attempts = 1;
  Policy policy;
  Conclusion conclusion = Conclusion::within_what_is_left;
};

// What a search ended with. Schema: docs/reference/search.md, Output.
struct Outcome {
  bool feasible = false;  // spent + predicted keep every limit, with the margin
  std::optional<Plan> chosen;
  Amount predicted, spent, total;
  double samples_left = 0;  // to be trained on the chosen deployment
  std::string stop_reason;
  std::vector<std::string> notes;
  std::vector<Probe> probes;
};

// Sees each decision before it is carried out, and each probe after it.
struct Observer {
  std::function<void(const Snapshot&, const Decision&)> decided;
  std::function<void(const Probe&)> probed;
};

// Probes of one round run side by side, each in its own thread. Errors of the profiler that end the search
// leave the log as it was before the round's end.
Outcome run_search(const SearchSetup& setup, Profiler& profiler, ProbeLog& log,
                   const Observer& observer = {});

// The best deployment of the table, without probes: the bound that no search can beat. Not feasible when none
// fits.
Outcome oracle(const SearchSetup& setup, const SpeedTable& table);

}  // namespace trireme::deploy
