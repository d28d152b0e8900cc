#pragma once
// Machine types that can be rented. Schema: docs/reference/search.md, offers.csv.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/spec/csv.h"

namespace trireme::spec {

struct Offer {
  std::string instance;     // unique among the offers
  double usd_per_hour = 0;  // on demand, one machine; > 0
  int64_t max_nodes = 1;    // >= 1
  std::optional<double> vcpus, memory_gib, accelerators, tflops, network_gbps;
  std::optional<double> spot_usd_per_hour;  // > 0
  double spot_interruptions_per_hour = 0;   // of one machine
  bool operator==(const Offer&) const = default;
};

struct OffersFilter {
  std::vector<std::string> instances;  // empty: all
  std::string region;                  // catalogues only; empty: all
  int64_t max_nodes = 50;              // for catalogues, which have no such column
};

// Two layouts, told apart by their columns:
//   instance,usd_per_hour,max_nodes[,vcpus,memory_gib,accelerators,tflops,network_gbps,spot_usd_per_hour,
//   spot_interruptions_per_hour]
//   SkyPilot's catalogue: InstanceType,Price,…; one row per type and zone, of which the cheapest price
//   counts.
// Error(input), one line with file and line: missing column, empty table, price not above 0, a type twice, a
// type of the filter that is not there.
std::vector<Offer> read_offers(const std::filesystem::path& path, const OffersFilter& filter = {});
std::vector<Offer> offers_from(const CsvTable& table, const OffersFilter& filter = {});

}  // namespace trireme::spec
