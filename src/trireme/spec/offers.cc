#include "trireme/spec/offers.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"

namespace trireme::spec {
namespace {

double positive(const CsvTable& table, size_t row, size_t column, const char* what) {
  const double value = table.number(row, column);
  if (value <= 0) fail(ErrorCode::input, table.where(row), ": ", what, " = ", value, ": must be above 0");
  return value;
}

std::optional<double> optional_positive(const CsvTable& table, size_t row, const char* name) {
  const auto column = table.find(name);
  if (!column || table.text(row, *column).empty()) return std::nullopt;
  return positive(table, row, *column, name);
}

std::optional<double> not_negative(const CsvTable& table, size_t row, const char* name) {
  const auto value = table.optional_number(row, table.find(name));
  if (value && *value < 0)
    fail(ErrorCode::input, table.where(row), ": ", name, " = ", *value, ": must be at least 0");
  return value;
}

std::vector<Offer> own_layout(const CsvTable& table) {
  const size_t instance = table.column("instance"), price = table.column("usd_per_hour"),
               nodes = table.column("max_nodes");
  std::vector<Offer> offers;
  std::map<std::string, size_t> rows;
  for (size_t row = 0; row < table.rows(); ++row) {
    Offer offer;
    offer.instance = table.text(row, instance);
    if (offer.instance.empty()) fail(ErrorCode::input, table.where(row), ": instance is empty");
    const auto [first, fresh] = rows.emplace(offer.instance, row);
    if (!fresh)
      fail(ErrorCode::input, table.where(row), ": ", offer.instance, " is already in line ",
           table.where(first->second).substr(table.name().size() + 1), "; keep one of the two");
    offer.usd_per_hour = positive(table, row, price, "usd_per_hour");
    offer.max_nodes = table.whole_number(row, nodes);
    if (offer.max_nodes < 1)
      fail(ErrorCode::input, table.where(row), ": max_nodes = ", offer.max_nodes, ": must be at least 1");
    offer.vcpus = optional_positive(table, row, "vcpus");
    offer.memory_gib = optional_positive(table, row, "memory_gib");
    offer.accelerators = not_negative(table, row, "accelerators");
    offer.tflops = optional_positive(table, row, "tflops");
    offer.network_gbps = optional_positive(table, row, "network_gbps");
    offer.spot_usd_per_hour = optional_positive(table, row, "spot_usd_per_hour");
    offer.spot_interruptions_per_hour = not_negative(table, row, "spot_interruptions_per_hour").value_or(0);
    offers.push_back(std::move(offer));
  }
  return offers;
}

void take_cheaper(std::optional<double>& best, std::optional<double> price) {
  if (price && (!best || *price < *best)) best = price;
}

// One row per type and zone; rows without a price (offered as spot only) give no offer on demand.
std::vector<Offer> catalogue_layout(const CsvTable& table, const OffersFilter& filter) {
  const size_t instance = table.column("InstanceType"), price = table.column("Price");
  const auto region = table.find("Region"), spot = table.find("SpotPrice");
  if (!filter.region.empty() && !region)
    fail(ErrorCode::input, table.name(), ": space.region = ", filter.region,
         ", but there is no column Region");
  struct Prices {
    Offer offer;
    std::optional<double> on_demand;
  };
  std::map<std::string, Prices> found;
  for (size_t row = 0; row < table.rows(); ++row) {
    if (!filter.region.empty() && table.text(row, *region) != filter.region) continue;
    auto& entry = found[table.text(row, instance)];
    if (!table.text(row, price).empty()) take_cheaper(entry.on_demand, positive(table, row, price, "Price"));
    if (spot && !table.text(row, *spot).empty())
      take_cheaper(entry.offer.spot_usd_per_hour, positive(table, row, *spot, "SpotPrice"));
    entry.offer.vcpus = optional_positive(table, row, "vCPUs");
    entry.offer.memory_gib = optional_positive(table, row, "MemoryGiB");
    entry.offer.accelerators = not_negative(table, row, "AcceleratorCount");
  }
  std::vector<Offer> offers;
  for (auto& [name, entry] : found) {
    if (!entry.on_demand || name.empty()) continue;
    entry.offer.instance = name;
    entry.offer.usd_per_hour = *entry.on_demand;
    entry.offer.max_nodes = filter.max_nodes;
    offers.push_back(entry.offer);
  }
  if (offers.empty())
    fail(ErrorCode::input, table.name(), ": no priced type",
         filter.region.empty() ? "" : " in region " + filter.region, "; check space.region");
  return offers;
}

}  // namespace

std::vector<Offer> offers_from(const CsvTable& table, const OffersFilter& filter) {
  const bool catalogue = table.has("InstanceType");
  if (table.rows() == 0) fail(ErrorCode::input, table.name(), ": no offers below the line of names");
  auto offers = catalogue ? catalogue_layout(table, filter) : own_layout(table);
  if (!catalogue && !filter.region.empty())
    fail(ErrorCode::usage, "space.region is for catalogues with a column Region; ", table.name(),
         " has none");
  std::vector<std::string> names;
  for (const auto& offer : offers) names.push_back(offer.instance);
  for (const auto& wanted : filter.instances) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) continue;
    const auto near = nearest(wanted, names);
    fail(ErrorCode::input, table.name(), ": no type ", wanted, " (space.instances)",
         near.empty() ? "" : "; did you mean " + near + "?");
  }
  if (!filter.instances.empty())
    std::erase_if(offers, [&](const Offer& offer) {
      return std::find(filter.instances.begin(), filter.instances.end(), offer.instance) ==
             filter.instances.end();
    });
  return offers;
}

std::vector<Offer> read_offers(const std::filesystem::path& path, const OffersFilter& filter) {
  return offers_from(CsvTable::read(path), filter);
}

}  // namespace trireme::spec
