#pragma once
// Counters, gauges and histograms of one model version, and their Prometheus text. Names of Triton's where it
// has one; the histograms have fixed buckets, so those of several replicas add up.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/serve/values.h"

namespace trireme::serve {

// Upper bounds from `first`, each `factor` times the one before; the last bucket is open.
class Histogram {
 public:
  static constexpr size_t kBounds = 40;
  Histogram(double first, double factor);
  void add(double value);

  struct Snapshot {
    std::array<double, kBounds> bounds{};
    std::array<uint64_t, kBounds + 1> counts{};
    double sum = 0;
    uint64_t total() const;
    // The upper bound of the bucket that holds this share of the values; 0 when empty.
    double quantile(double share) const;
  };
  Snapshot snapshot() const;

 private:
  std::array<double, kBounds> bounds_;
  std::array<std::atomic<uint64_t>, kBounds + 1> counts_{};
  std::atomic<double> sum_{0};
};

struct ModelMetrics {
  // Requests.
  std::atomic<uint64_t> success{0}, rejected{0}, cancelled{0}, backend{0}, other{0};
  std::atomic<uint64_t> spilled{0};
  // Rows and runs: rows / runs is the mean batch.
  std::atomic<uint64_t> rows{0}, runs{0};
  // Microseconds, summed over requests.
  std::atomic<uint64_t> request_us{0}, queue_us{0}, compute_us{0};
  std::atomic<int64_t> pending{0};  // gauge: admitted, not yet running
  std::atomic<int64_t> running{0};  // gauge: requests
  std::atomic<double> load_s{0};
  Histogram request_s{100e-6, 1.4142135623730951};
  Histogram queue_s{100e-6, 1.4142135623730951};
  Histogram batch_rows{1, 1.189207115002721};
};

void count_rejection(ModelMetrics& metrics, Reason reason);
void count_success(ModelMetrics& metrics, std::chrono::nanoseconds took);

struct LabelledMetrics {
  std::string model, version;
  const ModelMetrics* metrics = nullptr;
};
struct ServerGauges {
  int64_t connections = 0;
  bool ready = false;
};
// The text format 0.0.4 of Prometheus.
std::string render_metrics(const std::vector<LabelledMetrics>& models, const ServerGauges& server);

}  // namespace trireme::serve
