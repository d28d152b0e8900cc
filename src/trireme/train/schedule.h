#pragma once
#include <cstdint>
#include <string>
namespace trireme::train {
struct Schedule {
  std::string kind = "constant";  // constant | linear | cosine
  int64_t warmup = 0, steps = 0;
  double final_share = 0;
};
// Multiplier of the learning rate at `step` (counted from 0): (step+1)/warmup during warm-up, then from 1 to
// final_share.
double factor(const Schedule& schedule, int64_t step);
}  // namespace trireme::train
