#include "trireme/train/run_files.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/folder_lock.h"
#include "trireme/base/json_problem.h"

namespace trireme::train {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kSummary = "summary.json";
constexpr const char* kTrace = "trace.json";
constexpr const char* kReport = "report.html";

// JSON knows no NaN; the writer puts null, so null reads as NaN.
double number(const Json& object, const char* key) {
  const Json& value = object.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

std::optional<double> optional_number(const Json& object, const char* key) {
  if (!object.contains(key) || object.at(key).is_null()) return std::nullopt;
  return object.at(key).get<double>();
}

StepMetrics metrics_of(const Json& object) {
  StepMetrics m;
  m.step = object.at("step").get<int64_t>();
  m.loss = number(object, "loss");
  m.lr = number(object, "lr");
  m.step_s = number(object, "step_s");
  m.forward_s = number(object, "forward_s");
  m.backward_s = number(object, "backward_s");
  m.optimizer_s = number(object, "optimizer_s");
  m.exposed_comm_s = number(object, "exposed_comm_s");
  m.codec_s = number(object, "codec_s");
  m.bytes_sent = object.at("bytes_sent").get<int64_t>();
  m.bytes_received = object.at("bytes_received").get<int64_t>();
  m.samples = object.at("samples").get<int64_t>();
  m.eval_loss = optional_number(object, "eval_loss");
  return m;
}

std::vector<StepMetrics> parse_metrics(std::string_view text, const std::filesystem::path& file) {
  std::vector<StepMetrics> rows;
  int line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty()) continue;
    try {
      rows.push_back(metrics_of(Json::parse(line)));
    } catch (const nlohmann::json::exception& error) {
      fail(ErrorCode::input, file.string(), ":", line_number,
           ": not a row of training metrics: ", json_problem(error));
    }
  }
  return rows;
}

// The rows of an earlier attempt that a resumed run keeps. A line that a crash cut short has no newline and
// goes.
std::string kept_rows(const std::filesystem::path& file, int64_t first_step) {
  if (first_step <= 1 || !std::filesystem::exists(file)) return "";
  const std::string text = read_file(file);
  const auto end = text.rfind('\n');
  std::string kept;
  for (const auto& row :
       parse_metrics(end == std::string::npos ? "" : std::string_view(text).substr(0, end), file))
    if (row.step < first_step) kept += to_json(row) + "\n";
  return kept;
}

// A new run in an old folder: its curves would otherwise be drawn over the old ones.
void remove_event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) old.push_back(entry.path());
  for (const auto& path : old) std::filesystem::remove(path);
}

std::filesystem::path made(std::filesystem::path folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::io, folder.string(), ": cannot create the run folder: ", error.message());
  return folder;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string to_json(const StepMetrics& m) {
  Json object{{"step", m.step},
              {"loss", m.loss},
              {"lr", m.lr},
              {"step_s", m.step_s},
              {"forward_s", m.forward_s},
              {"backward_s", m.backward_s},
              {"optimizer_s", m.optimizer_s},
              {"exposed_comm_s", m.exposed_comm_s},
              {"codec_s", m.codec_s},
              {"bytes_sent", m.bytes_sent},
              {"bytes_received", m.bytes_received},
              {"samples", m.samples}};
  if (m.eval_loss) object["eval_loss"] = *m.eval_loss;
  return object.dump();
}

std::string to_json(const Summary& s) {
  const Json object{{"version", Summary::kVersion},
                    {"kind", "summary"},
                    {"world_size", s.world_size},
                    {"steps", s.steps},
                    {"final_loss", s.final_loss},
                    {"eval_loss", s.eval_loss ? Json(*s.eval_loss) : Json()},
                    {"median_step_s", s.median_step_s},
                    {"samples_per_s", s.samples_per_s},
                    {"model_flops_per_s", s.model_flops_per_s},
                    {"bytes_sent_per_step", s.bytes_sent_per_step},
                    {"codec", s.codec},
                    {"strategy", s.strategy},
                    {"transport", s.transport},
                    {"device", s.device},
                    {"peak_rss_bytes", s.peak_rss_bytes}};
  return object.dump(2) + "\n";
}

Summary read_summary(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  try {
    const Json object = Json::parse(text);
    if (object.at("version").get<int>() != Summary::kVersion)
      fail(ErrorCode::unsupported, file.string(), ": summary version ", object.at("version").dump(),
           ", this build reads ", Summary::kVersion);
    Summary s;
    s.world_size = object.at("world_size").get<int>();
    s.steps = object.at("steps").get<int64_t>();
    s.final_loss = number(object, "final_loss");
    s.eval_loss = optional_number(object, "eval_loss");
    s.median_step_s = number(object, "median_step_s");
    s.samples_per_s = number(object, "samples_per_s");
    s.model_flops_per_s = number(object, "model_flops_per_s");
    s.bytes_sent_per_step = object.at("bytes_sent_per_step").get<int64_t>();
    s.codec = object.at("codec").get<std::string>();
    s.strategy = object.at("strategy").get<std::string>();
    s.transport = object.at("transport").get<std::string>();
    s.device = object.at("device").get<std::string>();
    s.peak_rss_bytes = object.at("peak_rss_bytes").get<int64_t>();
    return s;
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::input, file.string(), ": not a run's summary: ", json_problem(error));
  }
}

std::vector<StepMetrics> read_metrics(const std::filesystem::path& file) {
  return parse_metrics(read_file(file), file);
}

struct RunFiles::State {
  std::filesystem::path folder;
  std::unique_ptr<FolderLock> lock;
  std::ofstream metrics;
  EventWriter events;
};

RunFiles::RunFiles(std::filesystem::path folder, int64_t first_step) {
  folder = made(std::move(folder));
  auto lock = std::make_unique<FolderLock>(folder);
  if (first_step <= 1) remove_event_files(folder);
  // What the end of an earlier attempt left is not this one's: a run that breaks off has no summary.
  for (const char* name : {kSummary, kTrace, kReport}) std::filesystem::remove(folder / name);
  // Rewritten as a whole, so that a crash here loses no row.
  const auto file = folder / kMetrics;
  write_file(file, kept_rows(file, first_step));
  EventWriter events(folder, first_step);
  state_ = std::make_unique<State>(
      State{folder, std::move(lock), std::ofstream(file, std::ios::app), std::move(events)});
}

RunFiles::~RunFiles() = default;

const std::filesystem::path& RunFiles::folder() const {
  return state_->folder;
}

void RunFiles::add(const StepMetrics& m) {
  // Each row reaches the file at once: others follow the run by it.
  state_->metrics << to_json(m) << '\n' << std::flush;
  if (!state_->metrics)
    fail(ErrorCode::io, (folder() / kMetrics).string(), ": cannot write: ", std::strerror(errno));
  const double now = wall_time();
  EventWriter& events = state_->events;
  events.scalar("loss/train", m.step, m.loss, now);
  if (m.eval_loss) events.scalar("loss/eval", m.step, *m.eval_loss, now);
  events.scalar("lr", m.step, m.lr, now);
  events.scalar("time/step_s", m.step, m.step_s, now);
  events.scalar("time/exposed_comm_s", m.step, m.exposed_comm_s, now);
  events.scalar("network/bytes_sent", m.step, static_cast<double>(m.bytes_sent), now);
  events.flush();
}

void RunFiles::finish(const Summary& summary, const std::string& trace_json) {
  state_->events.flush();
  sync_path(folder() / kMetrics);
  write_file(folder() / kTrace, trace_json);
  write_file(folder() / kSummary, to_json(summary));
  write_file(folder() / kReport, report_html({folder()}));
}

}  // namespace trireme::train
