#pragma once
// The slow truth that the collectives are tested against: gather everything in one place, add in double.
#include <cmath>
#include <vector>

namespace trireme::comm {

struct ReferenceSum {
  std::vector<double> sum;        // over ranks, element by element
  std::vector<double> magnitude;  // of |values|: what rounding errors are proportional to
};

inline ReferenceSum reference_sum(const std::vector<std::vector<float>>& by_rank) {
  ReferenceSum r;
  r.sum.resize(by_rank.at(0).size());
  r.magnitude.resize(r.sum.size());
  for (const auto& values : by_rank) {
    for (size_t i = 0; i < values.size(); ++i) {
      r.sum[i] += double{values[i]};
      r.magnitude[i] += std::fabs(double{values[i]});
    }
  }
  return r;
}

}  // namespace trireme::comm
