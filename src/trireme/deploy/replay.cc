#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/deploy/profiler.h"

namespace trireme::deploy {

SpeedTable read_speeds(const spec::CsvTable& table, const std::vector<spec::Offer>& offers) {
  const size_t instance = table.column("instance"), nodes = table.column("nodes"),
               speed = table.column("samples_per_s");
  const auto spread = table.find("relative_sd");
  std::vector<std::string> names;
  for (const auto& offer : offers) names.push_back(offer.instance);
  SpeedTable speeds;
  for (size_t row = 0; row < table.rows(); ++row) {
    const Deployment at{table.text(row, instance), table.whole_number(row, nodes)};
    if (!names.empty() && std::find(names.begin(), names.end(), at.instance) == names.end()) {
      const auto near = nearest(at.instance, names);
      fail(ErrorCode::input, table.where(row), ": type ", at.instance, " is not among the offers",
           near.empty() ? "; add it to space.offers" : "; did you mean " + near + "?");
    }
    if (at.nodes < 1)
      fail(ErrorCode::input, table.where(row), ": nodes = ", at.nodes, ": must be at least 1");
    const SpeedTable::Row value{table.number(row, speed), table.optional_number(row, spread).value_or(0)};
    if (value.samples_per_s < 0)
      fail(ErrorCode::input, table.where(row), ": samples_per_s = ", value.samples_per_s,
           ": must be above 0, or 0 for a deployment that fails");
    if (value.relative_sd < 0)
      fail(ErrorCode::input, table.where(row), ": relative_sd = ", value.relative_sd, ": must be at least 0");
    if (!speeds.rows.emplace(at, value).second)
      fail(ErrorCode::input, table.where(row), ": ", to_text(at), " is there twice; keep one row");
  }
  if (speeds.rows.empty()) fail(ErrorCode::input, table.name(), ": no speeds below the line of names");
  return speeds;
}

Measurement ReplayProfiler::measure(const ProbeRequest& request) {
  const auto row = table_.rows.find(request.deployment);
  Measurement m{.hours = request.planned_hours};
  if (row == table_.rows.end() || row->second.samples_per_s == 0) {
    m.error = "the table says that it fails";
  } else {
    m.samples_per_s = row->second.samples_per_s;
    m.relative_sd = row->second.relative_sd;
  }
  return m;
}

}  // namespace trireme::deploy
