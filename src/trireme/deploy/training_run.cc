#include "trireme/deploy/training_run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;

constexpr double kLookSeconds = 0.2;  // between two looks at metrics.jsonl

std::optional<int64_t> step_of(const fs::path& folder) {
  const auto name = folder.filename().string();
  if (!name.starts_with("step_") || !fs::exists(folder / "index.json")) return std::nullopt;
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

std::optional<Checkpoint> newest_in(const fs::path& checkpoints) {
  std::optional<Checkpoint> newest;
  if (!fs::is_directory(checkpoints)) return newest;
  for (const auto& entry : fs::directory_iterator(checkpoints))
    if (const auto step = step_of(entry.path()); step && (!newest || *step > newest->step))
      newest = Checkpoint{*step, entry.path()};
  return newest;
}

fs::path unused_folder(const fs::path& runs) {
  for (int number = 1;; ++number)
    if (const auto folder = runs / cat("attempt-", number); !fs::exists(folder)) return folder;
}

}  // namespace

std::optional<Checkpoint> newest_checkpoint(const fs::path& runs) {
  std::optional<Checkpoint> newest;
  if (!fs::is_directory(runs)) return newest;
  for (const auto& run : fs::directory_iterator(runs))
    if (const auto found = newest_in(run.path() / "checkpoints");
        found && (!newest || found->step > newest->step))
      newest = found;
  return newest;
}

TrainingRun::TrainingRun(const TrainingOptions& options, const ProbeRequest& request, Processes& processes)
    : folder_(unused_folder(options.runs)), batch_(options.global_batch) {
  const int64_t nodes = request.deployment.nodes;
  TRIREME_CHECK(batch_ > 0 && batch_ % nodes == 0);
  fs::create_directories(options.runs);
  const auto steps = static_cast<int64_t>(std::ceil(options.samples / static_cast<double>(batch_)));
  std::vector<std::string> words{options.program,
                                 "train",
                                 options.config.string(),
                                 "--nproc",
                                 cat(nodes),
                                 "--out",
                                 folder_.string(),
                                 "--set",
                                 cat("train.steps=", steps),
                                 "--set",
                                 cat("train.batch_per_rank=", batch_ / nodes)};
  for (const auto& set : options.sets) words.insert(words.end(), {"--set", fill_command(set, request)});
  if (const auto from = newest_checkpoint(options.runs)) {
    first_step_ = from->step;
    words.insert(words.end(), {"--resume", from->folder.string()});
  }
  process_ = processes.start(words);
}

std::vector<double> TrainingRun::new_speeds() {
  std::vector<double> speeds;
  const auto path = folder_ / "metrics.jsonl";
  if (!fs::exists(path)) return speeds;
  const auto text = read_file(path);
  for (size_t end; (end = text.find('\n', read_)) != std::string::npos; read_ = end + 1) {
    const auto row = nlohmann::json::parse(text.substr(read_, end - read_), nullptr, false);
    if (!row.is_object() || row.value("step", int64_t{0}) <= first_step_) continue;
    const double seconds = row.value("step_s", 0.0);
    if (seconds > 0) speeds.push_back(static_cast<double>(batch_) / seconds);
    ++steps_seen_;
  }
  return speeds;
}

int64_t TrainingRun::samples_kept() const {
  const auto last = newest_in(folder_ / "checkpoints");
  return last && last->step > first_step_ ? (last->step - first_step_) * batch_ : 0;
}

Measurement TrainingProfiler::measure(const ProbeRequest& request) {
  const auto start = clock_.now();
  const auto hours = [&] { return std::chrono::duration<double>(clock_.now() - start).count() / 3600; };
  TrainingRun run(options_, request, processes_);
  std::vector<double> speeds;
  Measurement m;
  for (std::string line;;) {
    const auto event = run.process().next_line(line, Deadline::after(clock_, kLookSeconds));
    for (const double speed : run.new_speeds()) speeds.push_back(speed);
    if (event == Process::Event::end) break;
    m.cancelled = event == Process::Event::cancelled;
    const auto verdict = judge(estimate(speeds), rules_.early_end ? request.needed_samples_per_s : 0,
                               rules_.precision, hours() >= request.planned_hours);
    m.ended_early = verdict == Verdict::too_slow || verdict == Verdict::fast_enough;
    const bool too_long = hours() >= request.planned_hours * rules_.longest;
    if (verdict == Verdict::go_on && !too_long && !m.cancelled) continue;
    run.process().stop(rules_.grace_seconds);
    break;
  }
  const auto speed = estimate(speeds);
  m.samples_per_s = speed.samples_per_s;
  m.relative_sd = speed.relative_sd;
  m.hours = hours();
  m.samples_trained = run.samples_kept();
  if (m.cancelled) {
    m.error = "stopped from outside";
  } else if (speeds.empty()) {
    auto told = run.process().last_error();
    std::replace(told.begin(), told.end(), '\n', ' ');
    m.error = cat("trained no step; exit code ", run.process().exit_code(), ": ",
                  told.substr(told.size() > 200 ? told.size() - 200 : 0));
  }
  return m;
}

}  // namespace trireme::deploy
