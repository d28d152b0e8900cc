#pragma once
// Probes and launches on rented machines through SkyPilot's program `sky`: we write the task, it brings
// clusters up.
#include <filesystem>

#include "trireme/base/process.h"
#include "trireme/deploy/command_profiler.h"

namespace trireme::deploy {

struct SkyTask {
  std::string cloud, region;  // empty: SkyPilot chooses
  std::string workdir, setup, run;
  std::vector<std::string> environment;  // NAME=value
};

// The task as SkyPilot reads it.
std::string to_yaml(const SkyTask& task, const ProbeRequest& request);
// Cluster of a deployment: letters, digits and dashes only.
std::string cluster_name(const Deployment& deployment, const std::string& job);
// What is called for one probe, in order: launch, and down whatever launch did.
std::vector<std::vector<std::string>> sky_commands(const std::filesystem::path& yaml,
                                                   const std::string& cluster);

class SkyProfiler : public Profiler {
 public:
  // Task files are written to `folder`. `job` tells clusters of different searches apart.
  SkyProfiler(SkyTask task, std::filesystem::path folder, std::string job, WatchRules rules,
              Processes& processes, const Clock& clock)
      : task_(std::move(task)),
        folder_(std::move(folder)),
        job_(std::move(job)),
        rules_(rules),
        processes_(processes),
        clock_(clock) {}
  // The cluster is taken down before this returns; if `sky down` fails, Error(io) names the cluster, since it
  // may cost on.
  Measurement measure(const ProbeRequest& request) override;

 private:
  SkyTask task_;
  std::filesystem::path folder_;
  std::string job_;
  WatchRules rules_;
  Processes& processes_;
  const Clock& clock_;
};

}  // namespace trireme::deploy
