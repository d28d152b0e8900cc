#include "launch.h"

#include <charconv>
#include <climits>

#include "trireme/base/error.h"

namespace trireme::app {
namespace {

int parse_variable(const char* name, const std::string& text, int minimum, int maximum) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < minimum || value > maximum) {
    fail(ErrorCode::usage, name, "='", text, "' in the environment: must be a whole number from ", minimum,
         " to ", maximum);
  }
  return value;
}

std::string required(const Lookup& lookup, const char* name, const char* with) {
  if (auto value = lookup(name)) return *value;
  fail(ErrorCode::usage, name, " is not set, but ", with,
       " is: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT together, or none of them");
}

bool names_this_machine(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

LaunchPlan resolve_launch(const Lookup& lookup) {
  LaunchPlan plan;
  if (!lookup("RANK") && !lookup("WORLD_SIZE")) {
    plan.launcher = "one process";
    return plan;
  }
  const char* present = lookup("RANK") ? "RANK" : "WORLD_SIZE";
  plan.world = parse_variable("WORLD_SIZE", required(lookup, "WORLD_SIZE", present), 1, INT_MAX);
  plan.rank = parse_variable("RANK", required(lookup, "RANK", present), 0, plan.world - 1);
  plan.prefixed_output = lookup(kLocalLauncher).has_value();
  plan.launcher = plan.prefixed_output            ? "--nproc"
                  : lookup("TORCHELASTIC_RUN_ID") ? "torchrun"
                                                  : "RANK and WORLD_SIZE";
  if (plan.world == 1) return plan;

  plan.host = required(lookup, "MASTER_ADDR", present);
  plan.port = parse_variable("MASTER_PORT", required(lookup, "MASTER_PORT", present), 1, 65535);
  plan.attempt = lookup("TORCHELASTIC_RESTART_COUNT").value_or("");
  plan.serve_store = plan.rank == 0 && lookup("TORCHELASTIC_USE_AGENT_STORE") != "True";
  // A master on the loopback interface can only be reached by ranks of this machine.
  const bool all_local = names_this_machine(plan.host);
  plan.local_rank = all_local ? plan.rank : 0;
  plan.local_world = all_local ? plan.world : 1;
  if (const auto text = lookup("LOCAL_WORLD_SIZE")) {
    plan.local_world = parse_variable("LOCAL_WORLD_SIZE", *text, 1, plan.world);
    plan.local_rank = plan.rank % plan.local_world;
  }
  if (const auto text = lookup("LOCAL_RANK"))
    plan.local_rank = parse_variable("LOCAL_RANK", *text, 0, plan.world - 1);
  return plan;
}

std::string to_text(const LaunchPlan& plan) {
  if (plan.world == 1) return cat("rank 0 of 1 (", plan.launcher, ")");
  return cat("rank ", plan.rank, " of ", plan.world, " (", plan.launcher, "; store at ", plan.host, ":",
             plan.port, ")");
}

}  // namespace trireme::app
