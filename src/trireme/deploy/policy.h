#pragma once
// Search policies: pure functions from what is known to what is probed next. The loop that acts is engine.h.
#include <functional>
#include <string>
#include <vector>

#include "trireme/deploy/surrogate.h"

namespace trireme::deploy {

// How one candidate fared in a decision, for --explain.
struct View {
  size_t candidate = 0;
  Belief belief;
  double gain = 0;      // expected saving by probing it: hours or USD, as the goal minimises
  double score = 0;     // by which candidates are ranked
  std::string verdict;  // "probe next", or why not
};

struct Decision {
  std::vector<size_t> probes;      // candidates to probe now, side by side; empty: stop
  std::string reason;              // of the probe, or of the stop
  std::vector<View> views;         // candidates that were weighed; empty in an initial design
  std::vector<std::string> notes;  // prunes that fired, types that were skipped
};

using Policy = std::function<Decision(const Snapshot&)>;

// How the final deployment is picked from the probes.
enum class Conclusion {
  within_what_is_left,  // counts what the probes cost: HeterBO
  within_the_limit      // as if probes were free: what plain methods do, who may so overrun
};

enum class Prune { off, soft, hard };

struct HeterboOptions {
  SurrogateOptions surrogate;
  Prune prune = Prune::hard;
  double tolerance = 0.05;  // a fall in speed below this share is noise
  double alpha = 0.5;       // score = net gain / cost^alpha
  double confidence_z = 1.645;
  int64_t parallel = 1, max_probes = 0;  // 0: no such limit
};
// HeterBO as docs/reference/search.md, Method, specifies it.
Policy make_heterbo(const HeterboOptions& options);

struct BayesOptions {
  SurrogateOptions surrogate;
  bool smallest_start = false;  // the first probes are each type's smallest count, else `starts` random ones
  int64_t starts = 3, min_probes = 6, max_probes = 0;
  double stop_share = 0.1;    // stop when the largest expected improvement is below this share of the best
  bool weigh_limits = false;  // times the probability that the limits hold (CherryPick)
  bool guard = false;         // keep HeterBO's reserve (the paper's "improved" baselines)
  bool per_cost = false;      // improvement per cost of the probe
  uint64_t seed = 0;
};
// Plain Bayesian optimisation: the paper's ConvBO, CherryPick with `weigh_limits`.
Policy make_bayes(const BayesOptions& options);
Policy make_random(uint64_t seed, int64_t probes);
Policy make_exhaustive();
// Three counts of each type, then time per sample = a + b/n + c log n + d n by non-negative least squares
// (Ernest, NSDI'16), whose best deployment is probed until the best one is a probed one.
Policy make_ernest(int64_t verifications = 2);

// What a candidate's probe costs at most.
Amount probe_cost(const Candidate& candidate);
// Why spending `cost` on a probe would break a limit, with the reserve of the incumbent kept back; empty: it
// would not.
std::string guard_verdict(const Left& left, const Amount& cost, const std::optional<Plan>& incumbent);

}  // namespace trireme::deploy
