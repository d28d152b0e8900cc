#pragma once
// JOB.toml: every key with its default, unit and range, and the values that a search is made of.
#include <filesystem>
#include <memory>

#include "trireme/base/options.h"
#include "trireme/base/process.h"
#include "trireme/deploy/engine.h"

namespace trireme::deploy {

struct JobOptions {
  double samples = 0;
  struct {
    std::string scenario = "fastest";
    std::optional<double> deadline_hours, budget_usd;
    double margin = 0.05;
  } goal;
  struct {
    std::string offers, region, spot = "off", predicted, deployments;
    std::vector<double> nodes;
    std::vector<std::string> instances;
    int64_t max_nodes = 50;
    double restart_minutes = 12;
  } space;
  struct {
    std::string kind = "replay", table, command, minutes = "10 + floor((n-1)/3)";
    int64_t attempts = 1;
    double precision = 0.05, longest = 2, grace_seconds = 60;
    bool early_end = true;
    std::string config, program = "/proc/self/exe";  // trireme
    std::vector<std::string> sets;
    int64_t global_batch = 0;
    std::string cloud, region, workdir, setup, run;  // skypilot
    std::vector<std::string> environment;
  } probe;
  struct {
    std::string method = "heterbo", prune = "hard";
    int64_t seed = 0, parallel = 1, max_probes = 0;
    double tolerance = 0.05, alpha = 0.5, confidence = 0.95;
  } search;
  void list(OptionList& list);
};

struct Job {
  JobOptions options;
  std::string name;              // of the job file, without its ending
  std::filesystem::path folder;  // relative paths of the job start here
  SearchSpace space;
  Goal goal;
  std::optional<SpeedTable> table;  // probe.kind = "replay"
  std::string digest;               // of everything that decides results: binds the state file
  SearchSetup setup() const;        // points into this job
};

// Error(input) or Error(usage), one line that names file and key: see docs/reference/search.md.
Job read_job(const std::filesystem::path& path, const std::vector<std::string>& sets = {});
// From TOML text, as the Python package gives it; `name` stands for the file in errors.
Job job_from(std::string_view toml, const std::string& name, const std::filesystem::path& folder,
             const std::vector<std::string>& sets = {});

Policy policy_of(const Job& job);

// Where a job's real training steps and task files lie: JOB.runs beside the job file.
std::filesystem::path runs_folder(const Job& job);
// The profiler of probe.kind. What it is given must outlive it.
std::unique_ptr<Profiler> profiler_of(const Job& job, Processes& processes, const Clock& clock);

}  // namespace trireme::deploy
