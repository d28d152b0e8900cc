#pragma once
// The run folder: metrics.jsonl, summary.json, trace.json, TensorBoard events, report.html. Rank 0 writes.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::train {

// One object per optimizer step; names are the public contract (seconds, bytes of this rank's payload).
struct StepMetrics {
  int64_t step = 0;  // counted from 1
  double loss = 0, lr = 0;
  double step_s = 0, forward_s = 0, backward_s = 0, optimizer_s = 0, exposed_comm_s = 0, codec_s = 0;
  int64_t bytes_sent = 0, bytes_received = 0;
  int64_t samples = 0;  // global samples consumed so far
  std::optional<double> eval_loss;
};
std::string to_json(const StepMetrics& metrics);

struct Summary {
  static constexpr int kVersion = 1;
  int world_size = 1;
  int64_t steps = 0;
  double final_loss = 0;
  std::optional<double> eval_loss;
  double median_step_s = 0, samples_per_s = 0, model_flops_per_s = 0;
  int64_t bytes_sent_per_step = 0;
  std::string codec, strategy, transport, device;
  int64_t peak_rss_bytes = 0;
};
std::string to_json(const Summary& summary);

// Appends rows; on resume, rows after `first_step - 1` of an earlier attempt are cut off first.
class RunFiles {
 public:
  // Creates the folder and holds it: Error(usage) when another run writes there. Error(io) names the file and
  // the cause, here and below.
  RunFiles(std::filesystem::path folder, int64_t first_step);
  ~RunFiles();
  void add(const StepMetrics& metrics);  // metrics.jsonl and TensorBoard
  void finish(const Summary& summary,
              const std::string& trace_json);  // summary.json, trace.json, report.html
  const std::filesystem::path& folder() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Rows of a metrics.jsonl; Error(input) naming file and line.
std::vector<StepMetrics> read_metrics(const std::filesystem::path& file);
Summary read_summary(const std::filesystem::path& file);

// TensorBoard's record format: length, masked CRC-32C, protobuf Event with scalar summaries.
class EventWriter {
 public:
  // A resumed run gives its first step: the points of an earlier attempt are hidden from there on.
  explicit EventWriter(const std::filesystem::path& folder, int64_t first_step = 1);
  void scalar(const std::string& tag, int64_t step, double value, double wall_time);
  void flush();  // Error(io) when the disk is full

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

// One page, no scripts from elsewhere: figures, loss and time curves (inline SVG) of one or several runs side
// by side.
std::string report_html(const std::vector<std::filesystem::path>& runs);

}  // namespace trireme::train
