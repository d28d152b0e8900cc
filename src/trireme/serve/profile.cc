#include "trireme/serve/profile.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json_problem.h"
#include "trireme/spec/json_guard.h"

namespace trireme::serve {

using nlohmann::ordered_json;

std::string to_json(const ServingProfile& p) {
  ordered_json times = ordered_json::array();
  for (const auto& t : p.times) times.push_back({{"rows", t.rows}, {"seconds", t.seconds}});
  const ordered_json json = {{"kind", "serving_profile"},
                             {"version", ServingProfile::kVersion},
                             {"model", p.model},
                             {"instance_type", p.instance_type},
                             {"instances", p.instances},
                             {"threads", p.threads},
                             {"times", times},
                             {"slo_ms", 1e3 * p.slo_s},
                             {"margin_ms", 1e3 * p.margin_s},
                             {"max_batch", p.choice.rows},
                             {"batch_wait_ms", 1e3 * p.choice.wait_s},
                             {"rows_per_s", p.choice.rows_per_s},
                             {"capacity_per_min", p.capacity_per_min()}};
  return json.dump(2) + "\n";
}

ServingProfile parse_profile(std::string_view text, const std::filesystem::path& path) {
  try {
    spec::check_json_depth(text);
    const auto json = nlohmann::json::parse(text);
    if (json.at("kind") != "serving_profile") fail(ErrorCode::input, "it is not a serving_profile");
    if (const auto version = json.at("version").get<int>(); version > ServingProfile::kVersion)
      fail(ErrorCode::unsupported, "version ", version, " is newer than the ", ServingProfile::kVersion,
           " that this program reads");
    ServingProfile p;
    p.model = json.at("model").get<std::string>();
    p.instance_type = json.at("instance_type").get<std::string>();
    p.instances = json.at("instances").get<int64_t>();
    p.threads = json.at("threads").get<int64_t>();
    for (const auto& t : json.at("times")) {
      const BatchTime time{t.at("rows").get<int64_t>(), t.at("seconds").get<double>()};
      if (time.rows <= (p.times.empty() ? 0 : p.times.back().rows) || !(time.seconds > 0))
        fail(ErrorCode::input, "'times' must hold rising rows and seconds above 0");
      p.times.push_back(time);
    }
    if (p.times.empty() || p.times[0].rows != 1) fail(ErrorCode::input, "'times' must begin with 1 row");
    p.slo_s = json.at("slo_ms").get<double>() / 1e3;
    p.margin_s = json.at("margin_ms").get<double>() / 1e3;
    p.choice = {json.at("max_batch").get<int64_t>(), json.at("batch_wait_ms").get<double>() / 1e3,
                json.at("rows_per_s").get<double>()};
    return p;
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::input, path.string(), ": ", json_problem(e));
  } catch (const Error& e) {
    fail(e.code(), path.string(), ": ", e.what());
  }
}

ServingProfile read_profile(const std::filesystem::path& path) {
  return parse_profile(read_file(path), path);
}

std::vector<BatchTime> profile_table(const ServingProfile& profile, const std::filesystem::path& path,
                                     const std::string& model) {
  if (profile.model != model)
    fail(ErrorCode::input, path.string(), ": is a profile of model '", profile.model, "', not of '", model,
         "'");
  return profile.times;
}

}  // namespace trireme::serve
