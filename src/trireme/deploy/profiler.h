#pragma once
// What measures a deployment's speed: the outside world of a search.
#include <map>
#include <optional>
#include <string>

#include "trireme/deploy/space.h"
#include "trireme/spec/csv.h"

namespace trireme::deploy {

struct ProbeRequest {
  Deployment deployment;
  double planned_hours = 0;
  double usd_per_hour = 0;  // of all nodes
  bool spot = false;
  double needed_samples_per_s = 0;  // below it the deployment is of no use; 0: every speed tells something
};

struct Measurement {
  double samples_per_s = 0;     // > 0 unless it failed
  double relative_sd = 0;       // standard error, relative; 0: not known
  double hours = 0;             // used, set-up included
  int64_t samples_trained = 0;  // real training steps that are kept
  bool ended_early = false;
  bool cancelled =
      false;          // stopped from outside: the search ends, and this probe does not count as a failure
  std::string error;  // why it failed; empty: it did not
};

class Profiler {
 public:
  virtual ~Profiler() = default;
  // Failures of the probe are part of the answer: they are charged. Throws Error only when no further probe
  // makes sense (the program to call is missing, stopped from outside). Called from several threads at once.
  virtual Measurement measure(const ProbeRequest& request) = 0;
  // Does a probe outlive this process, or cost something before it returned?
  virtual bool acts_outside() const { return true; }
};

// Measured speeds: instance,nodes,samples_per_s[,relative_sd]. A speed of 0 is a probe that fails.
struct SpeedTable {
  struct Row {
    double samples_per_s = 0, relative_sd = 0;
  };
  std::map<Deployment, Row> rows;
};
// Error(input), one line: missing column, empty table, a row twice, a speed that is no number or negative, a
// type that is not among `offers` (empty: not checked).
SpeedTable read_speeds(const spec::CsvTable& table, const std::vector<spec::Offer>& offers);

// Answers from a table; the planned hours are charged.
class ReplayProfiler : public Profiler {
 public:
  explicit ReplayProfiler(SpeedTable table) : table_(std::move(table)) {}
  Measurement measure(const ProbeRequest& request) override;
  bool acts_outside() const override { return false; }

 private:
  SpeedTable table_;
};

}  // namespace trireme::deploy
