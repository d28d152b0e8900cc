#pragma once
// The deployments a search chooses among, with what they cost.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/deploy/count_expression.h"
#include "trireme/spec/offers.h"

namespace trireme::deploy {

struct Deployment {
  std::string instance;
  int64_t nodes = 1;
  auto operator<=>(const Deployment&) const = default;
};
std::string to_text(const Deployment& deployment);  // "t2.medium x 8"

// A way to pay for a deployment. On spot machines the work takes `stretch` times as long, because of
// interruptions.
struct Market {
  bool spot = false;
  double usd_per_hour = 0;  // of all nodes together
  double stretch = 1;       // >= 1
  bool operator==(const Market&) const = default;
};

struct Candidate {
  Deployment deployment;
  size_t type = 0;  // index into SearchSpace::offers
  double log2_nodes = 0;
  std::vector<Market> markets;                    // at least one
  double probe_hours = 0;                         // planned length of a probe
  double probe_usd = 0;                           // at the cheapest market
  std::optional<double> predicted_samples_per_s;  // from a cost model; a prior, never shown as measured
};

struct SearchSpace {
  std::vector<spec::Offer> offers;
  std::vector<Candidate> candidates;          // by offer, then by nodes
  std::vector<std::vector<double>> features;  // of each offer, scaled; empty when the offers do not tell
  std::map<Deployment, size_t> index;         // into candidates
  std::optional<size_t> find(const Deployment& deployment) const;
};

enum class SpotUse { off, on, automatic };

struct SpaceRules {
  std::vector<int64_t> nodes;                   // empty: 1, 2, 4, … and max_nodes of each offer
  std::optional<std::vector<Deployment>> only;  // deployments that exist (replay); nothing: all
  CountExpression probe_minutes{"10 + floor((n-1)/3)"};
  SpotUse spot = SpotUse::off;
  double spot_restart_hours = 0.2;  // lost by each interruption of the deployment
};

// Error(input): no deployment is left; a probe length that is not above 0; spot machines wanted but not
// offered.
SearchSpace make_space(std::vector<spec::Offer> offers, const SpaceRules& rules);

}  // namespace trireme::deploy
