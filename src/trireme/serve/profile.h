#pragma once
// serving_profile: how fast one instance type runs a model. Written by `trireme serve --profile-model`, read
// by the server (model.profile) and by whoever plans or simulates a fleet. docs/reference/serving.md.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/serve/batching.h"

namespace trireme::serve {

struct ServingProfile {
  static constexpr int kVersion = 1;
  std::string model, instance_type;
  int64_t instances = 1, threads = 1;  // copies of the model side by side, processor threads of each
  std::vector<BatchTime> times;        // of one copy
  double slo_s = 0, margin_s = 0;
  BatchingChoice choice;  // N_batch, W_batch, and mu* of one copy
  double capacity_per_min() const { return 60 * choice.rows_per_s * static_cast<double>(instances); }
};

std::string to_json(const ServingProfile& profile);
// Error(input) names the file and what is missing; Error(unsupported) for a newer version.
ServingProfile parse_profile(std::string_view text, const std::filesystem::path& path);
ServingProfile read_profile(const std::filesystem::path& path);
// Its times; Error(input) when it is another model's.
std::vector<BatchTime> profile_table(const ServingProfile& profile, const std::filesystem::path& path,
                                     const std::string& model);

}  // namespace trireme::serve
