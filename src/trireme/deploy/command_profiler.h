#pragma once
// A probe is a command of the user's: it brings the deployment up, trains, prints speeds and takes it down.
#include "trireme/base/process.h"
#include "trireme/deploy/profiler.h"
#include "trireme/deploy/readings.h"

namespace trireme::deploy {

struct WatchRules {
  double precision = 0.05;  // 95 % bounds within this share of the speed count as settled
  double longest = 2;  // an unstable probe is lengthened to this multiple of its planned time, then ended
  double grace_seconds = 60;  // between SIGTERM and SIGKILL: time to take the deployment down
  bool early_end = true;      // end as soon as the comparison with the best so far is settled
};

// Replaces {instance}, {nodes}, {minutes}, {usd_per_hour} and {spot}. Error(usage) for any other {word}, and
// for an instance name with characters that a shell would read.
std::string fill_command(const std::string& command, const ProbeRequest& request);

// Reads speeds from a process until it ends, or until the rules say that enough was seen, and stops it then.
// Charged is the time it ran, or what its last reading says under "minutes".
Measurement watch(Process& process, const ProbeRequest& request, const WatchRules& rules, const Clock& clock);

class CommandProfiler : public Profiler {
 public:
  CommandProfiler(std::string command, WatchRules rules, Processes& processes, const Clock& clock)
      : command_(std::move(command)), rules_(rules), processes_(processes), clock_(clock) {}
  Measurement measure(const ProbeRequest& request) override;

 private:
  std::string command_;
  WatchRules rules_;
  Processes& processes_;
  const Clock& clock_;
};

}  // namespace trireme::deploy
