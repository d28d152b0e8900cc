#include "trireme/serve/metrics.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"

namespace trireme::serve {
namespace {

std::string number(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string escaped(const std::string& label) {
  std::string out;
  for (const char c : label) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

void head(std::string& out, const char* name, const char* kind, const char* help) {
  out += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n");
}

std::string labels(const LabelledMetrics& m) {
  return cat("model=\"", escaped(m.model), "\",version=\"", escaped(m.version), "\"");
}

void histogram(std::string& out, const char* name, const char* help,
               const std::vector<LabelledMetrics>& models, const Histogram ModelMetrics::*field) {
  head(out, name, "histogram", help);
  for (const auto& m : models) {
    const auto snapshot = (m.metrics->*field).snapshot();
    uint64_t below = 0;
    for (size_t i = 0; i <= Histogram::kBounds; ++i) {
      below += snapshot.counts[i];
      const std::string bound = i < Histogram::kBounds ? number(snapshot.bounds[i]) : "+Inf";
      out += cat(name, "_bucket{", labels(m), ",le=\"", bound, "\"} ", below, "\n");
    }
    out += cat(name, "_sum{", labels(m), "} ", number(snapshot.sum), "\n");
    out += cat(name, "_count{", labels(m), "} ", below, "\n");
  }
}

template <typename T>
void values(std::string& out, const char* name, const char* kind, const char* help,
            const std::vector<LabelledMetrics>& models, const std::atomic<T> ModelMetrics::*field) {
  head(out, name, kind, help);
  for (const auto& m : models) {
    const T value = (m.metrics->*field).load();
    if constexpr (std::is_floating_point_v<T>)
      out += cat(name, "{", labels(m), "} ", number(value), "\n");
    else
      out += cat(name, "{", labels(m), "} ", value, "\n");
  }
}

void failures(std::string& out, const std::vector<LabelledMetrics>& models) {
  head(out, "nv_inference_request_failure", "counter", "Requests without a result, by reason");
  for (const auto& m : models) {
    const std::pair<const char*, uint64_t> reasons[] = {{"REJECTED", m.metrics->rejected},
                                                        {"CANCELED", m.metrics->cancelled},
                                                        {"BACKEND", m.metrics->backend},
                                                        {"OTHER", m.metrics->other}};
    for (const auto& [reason, count] : reasons)
      out += cat("nv_inference_request_failure{", labels(m), ",reason=\"", reason, "\"} ", count, "\n");
  }
}

}  // namespace

Histogram::Histogram(double first, double factor) {
  for (double bound = first; double& b : bounds_) {
    b = bound;
    bound *= factor;
  }
}

void Histogram::add(double value) {
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot s;
  s.bounds = bounds_;
  for (size_t i = 0; i <= kBounds; ++i) s.counts[i] = counts_[i].load(std::memory_order_relaxed);
  s.sum = sum_.load(std::memory_order_relaxed);
  return s;
}

uint64_t Histogram::Snapshot::total() const {
  uint64_t all = 0;
  for (const uint64_t count : counts) all += count;
  return all;
}

double Histogram::Snapshot::quantile(double share) const {
  const double wanted = share * static_cast<double>(total());
  uint64_t below = 0;
  for (size_t i = 0; i < kBounds; ++i) {
    below += counts[i];
    if (below > 0 && static_cast<double>(below) >= wanted) return bounds[i];
  }
  return total() == 0 ? 0 : bounds.back();
}

void count_rejection(ModelMetrics& metrics, Reason reason) {
  switch (reason) {
    case Reason::overloaded:
    case Reason::expired:
    case Reason::unavailable:
      ++metrics.rejected;
      break;
    case Reason::cancelled:
      ++metrics.cancelled;
      break;
    case Reason::failed:
      ++metrics.backend;
      break;
    default:
      ++metrics.other;
  }
}

void count_success(ModelMetrics& metrics, std::chrono::nanoseconds took) {
  ++metrics.success;
  metrics.request_us += static_cast<uint64_t>(std::max<int64_t>(0, took.count()) / 1000);
  metrics.request_s.add(std::chrono::duration<double>(took).count());
}

std::string render_metrics(const std::vector<LabelledMetrics>& models, const ServerGauges& server) {
  std::string out;
  using M = ModelMetrics;
  values(out, "nv_inference_request_success", "counter", "Requests answered with a result", models,
         &M::success);
  failures(out, models);
  values(out, "nv_inference_count", "counter", "Rows computed", models, &M::rows);
  values(out, "nv_inference_exec_count", "counter", "Runs of the model; rows per run is the mean batch",
         models, &M::runs);
  values(out, "nv_inference_request_duration_us", "counter", "Time from arrival to answer, summed", models,
         &M::request_us);
  values(out, "nv_inference_queue_duration_us", "counter", "Time spent waiting, summed over requests", models,
         &M::queue_us);
  values(out, "nv_inference_compute_infer_duration_us", "counter", "Time of the run, summed over requests",
         models, &M::compute_us);
  values(out, "nv_inference_pending_request_count", "gauge", "Requests that wait in the queue", models,
         &M::pending);
  values(out, "nv_model_load_duration_secs", "gauge", "Time that loading the model took", models, &M::load_s);
  values(out, "trireme_running_requests", "gauge", "Requests in a run", models, &M::running);
  values(out, "trireme_spilled_requests", "counter", "Requests handed to spill_url", models, &M::spilled);
  histogram(out, "trireme_request_duration_seconds", "Time from arrival to answer of answered requests",
            models, &M::request_s);
  histogram(out, "trireme_queue_duration_seconds", "Time spent waiting of answered requests", models,
            &M::queue_s);
  histogram(out, "trireme_batch_rows", "Rows per run", models, &M::batch_rows);
  head(out, "trireme_connections", "gauge", "Open HTTP connections");
  out += cat("trireme_connections ", server.connections, "\n");
  head(out, "trireme_ready", "gauge", "1 when the server takes requests");
  out += cat("trireme_ready ", server.ready ? 1 : 0, "\n");
  return out;
}

}  // namespace trireme::serve
