#include "trireme/deploy/space.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "trireme/base/error.h"

namespace trireme::deploy {
namespace {

std::vector<int64_t> counts_of(const spec::Offer& offer, const SpaceRules& rules) {
  std::set<int64_t> counts;
  if (!rules.nodes.empty()) {
    counts.insert(rules.nodes.begin(), rules.nodes.end());
  } else if (rules.only) {
    for (const auto& d : *rules.only)
      if (d.instance == offer.instance) counts.insert(d.nodes);
  } else {
    for (int64_t n = 1; n < offer.max_nodes; n *= 2) counts.insert(n);
    counts.insert(offer.max_nodes);
  }
  std::erase_if(counts, [&](int64_t n) { return n > offer.max_nodes; });
  return {counts.begin(), counts.end()};
}

// An interruption of any node stops the deployment: n times as frequent, each costing a restart.
std::vector<Market> markets_of(const spec::Offer& offer, double nodes, const SpaceRules& rules) {
  std::vector<Market> markets;
  if (rules.spot != SpotUse::on)
    markets.push_back({.spot = false, .usd_per_hour = offer.usd_per_hour * nodes});
  if (rules.spot != SpotUse::off && offer.spot_usd_per_hour)
    markets.push_back({.spot = true,
                       .usd_per_hour = *offer.spot_usd_per_hour * nodes,
                       .stretch = 1 + offer.spot_interruptions_per_hour * nodes * rules.spot_restart_hours});
  return markets;
}

// log2 of what every offer tells, each scaled to a standard deviation of 1 over the offers.
std::vector<std::vector<double>> features_of(const std::vector<spec::Offer>& offers) {
  using Field = std::optional<double> spec::Offer::*;
  std::vector<std::vector<double>> features(offers.size());
  for (const Field field : {&spec::Offer::vcpus, &spec::Offer::memory_gib, &spec::Offer::accelerators,
                            &spec::Offer::tflops, &spec::Offer::network_gbps}) {
    std::vector<double> column;
    for (const auto& offer : offers)
      if (offer.*field) column.push_back(std::log2(*(offer.*field) + (field == &spec::Offer::accelerators)));
    if (column.size() != offers.size()) continue;
    double mean = 0, square = 0;
    for (const double v : column) mean += v / static_cast<double>(column.size());
    for (const double v : column) square += (v - mean) * (v - mean) / static_cast<double>(column.size());
    if (square <= 1e-12) continue;
    for (size_t i = 0; i < offers.size(); ++i) features[i].push_back((column[i] - mean) / std::sqrt(square));
  }
  if (features.empty() || features.front().empty()) return {};
  return features;
}

}  // namespace

std::string to_text(const Deployment& deployment) {
  return cat(deployment.instance, " x ", deployment.nodes);
}

std::optional<size_t> SearchSpace::find(const Deployment& deployment) const {
  const auto found = index.find(deployment);
  if (found == index.end()) return std::nullopt;
  return found->second;
}

SearchSpace make_space(std::vector<spec::Offer> offers, const SpaceRules& rules) {
  SearchSpace space;
  std::set<Deployment> existing;
  if (rules.only) existing.insert(rules.only->begin(), rules.only->end());
  for (size_t type = 0; type < offers.size(); ++type) {
    for (const int64_t count : counts_of(offers[type], rules)) {
      const auto n = static_cast<double>(count);
      Candidate c{.deployment = {offers[type].instance, count}, .type = type, .log2_nodes = std::log2(n)};
      if (rules.only && !existing.contains(c.deployment)) continue;
      c.markets = markets_of(offers[type], n, rules);
      if (c.markets.empty()) continue;  // spot only, and this type has no spot price
      const double minutes = rules.probe_minutes(n);
      if (!(minutes > 0) || !std::isfinite(minutes))
        fail(ErrorCode::input, "probe.minutes gives ", minutes, " minutes for n = ", count,
             ": must be above 0");
      c.probe_hours = minutes / 60;
      double cheapest = c.markets.front().usd_per_hour;
      for (const auto& market : c.markets) cheapest = std::min(cheapest, market.usd_per_hour);
      c.probe_usd = c.probe_hours * cheapest;
      space.index[c.deployment] = space.candidates.size();
      space.candidates.push_back(std::move(c));
    }
  }
  if (space.candidates.empty())
    fail(ErrorCode::input, "no deployment to choose from: ",
         rules.spot == SpotUse::on ? "space.spot = \"on\" needs offers with spot_usd_per_hour"
         : rules.only              ? "the table of speeds, space.offers and space.nodes have none in common"
                                   : "every count of space.nodes is above max_nodes of the offers");
  space.features = features_of(offers);
  space.offers = std::move(offers);
  return space;
}

}  // namespace trireme::deploy
