#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/serve/load.h"

namespace trireme::serve {

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto place =
      values.begin() + static_cast<std::ptrdiff_t>(std::clamp<size_t>(rank, 1, values.size()) - 1);
  std::ranges::nth_element(values, place);
  return *place;
}

std::string to_json(const LoadReport& r, double slo_s) {
  constexpr double kMs = 1e3;
  uint64_t late = 0;
  for (const double s : r.ok_s) late += slo_s > 0 && s > slo_s ? 1 : 0;
  const auto share = [](uint64_t part, uint64_t all) {
    return all == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(all);
  };
  const nlohmann::ordered_json json = {
      {"sent", r.sent},
      {"ok", r.ok},
      {"rejected", r.rejected},
      {"failed", r.failed},
      {"seconds", r.seconds},
      {"sent_per_s", r.seconds > 0 ? static_cast<double>(r.sent) / r.seconds : 0},
      {"ok_per_s", r.seconds > 0 ? static_cast<double>(r.ok) / r.seconds : 0},
      {"p50_ms", kMs * quantile(r.ok_s, 0.5)},
      {"p90_ms", kMs * quantile(r.ok_s, 0.9)},
      {"p99_ms", kMs * quantile(r.ok_s, 0.99)},
      {"max_ms", kMs * quantile(r.ok_s, 1)},
      {"slo_miss", slo_s > 0 ? share(r.sent - (r.ok - late), r.sent) : 0.0},
      {"slo_miss_of_ok", share(late, r.ok)},
      {"rejected_p99_ms", kMs * quantile(r.rejected_s, 0.99)},
      {"sent_late_p99_ms", kMs * quantile(r.late_s, 0.99)},
      {"errors", r.errors}};
  return json.dump();
}

}  // namespace trireme::serve
