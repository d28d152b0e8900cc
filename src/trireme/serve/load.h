#pragma once
// An open-loop load generator for any server of the Open Inference Protocol: requests are sent when they are
// due, whatever became of earlier ones, and latency counts from the time at which a request was due.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/serve/trace.h"

namespace trireme::serve {

struct LoadOptions {
  std::string url;  // http://HOST:PORT
  std::string model, version;
  // For servers of other protocols: this body to this path, instead of an infer request to `model`.
  std::string path, payload;
  Trace trace;
  Gaps gaps = Gaps::exponential;
  double scale = 1;
  double duration_s = 0;  // 0: the trace's
  double slo_s = 0;
  double timeout_s = 30;  // of one request, from when it was due
  int64_t connections = 256;
  int64_t rows = 1;
  std::map<std::string, std::vector<int64_t>> shapes;  // of inputs, in place of what the metadata leaves open
  bool binary = true;
  uint64_t seed = 0;
};

struct LoadReport {
  uint64_t sent = 0, ok = 0, rejected = 0, failed = 0;  // rejected: 503
  double seconds = 0;                                   // from the first due time to the last answer
  std::vector<double> ok_s, rejected_s;                 // latencies
  std::vector<double> late_s;                           // how much later than due a request was sent
  std::map<std::string, uint64_t> errors;               // of failed ones, by message; the first ten
};

// Error(usage) for a URL or shape that cannot be, Error(io) when nobody answers, Error(input) when the
// metadata does not say what to send.
LoadReport run_load(const LoadOptions& options);

// The value below which this share of the values lies (the nearest rank); 0 when there are none.
double quantile(std::vector<double> values, double share);
// JSON for people and scripts; docs/reference/serving.md.
std::string to_json(const LoadReport& report, double slo_s);

}  // namespace trireme::serve
