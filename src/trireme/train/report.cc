#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <map>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/units.h"
#include "trireme/train/report_chart.h"
#include "trireme/train/run_files.h"

namespace trireme::train {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --back: #fff; --ink: #1b1f24; --quiet: #656d76; --line: #d8dee4; --stripe: #f6f8fa;
  --c0: #2563c9; --c1: #c8650b; --c2: #218a4c; --c3: #7d4fc4; --c4: #c2304a; --c5: #0f8385; }
@media (prefers-color-scheme: dark) { :root { --back: #14181d; --ink: #dce3ea; --quiet: #909aa5; --line: #313a44;
  --stripe: #1b2128; --c0: #6aa3ff; --c1: #f0984a; --c2: #5cc98a; --c3: #b491f0; --c4: #f27d90; --c5: #4fc4c6; } }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p, figcaption { color: var(--quiet); margin: .25rem 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .75rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child { text-align: left; font-weight: 500; } tbody tr:nth-child(odd) { background: var(--stripe); }
td small { color: var(--quiet); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1.5rem; }
figure { margin: 0; } svg { width: 100%; height: auto; } svg text { fill: var(--quiet); font-size: 12px; }
svg .title { fill: var(--ink); font-size: 14px; font-weight: 600; } .grid { stroke: var(--line); }
.stroke { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; } .fill { fill: var(--c); }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); }
.c3 { --c: var(--c3); } .c4 { --c: var(--c4); } .c5 { --c: var(--c5); }
details { margin: .5rem 0; } pre { overflow-x: auto; background: var(--stripe); padding: .75rem; font-size: 13px; }
)";

struct Run {
  std::string name;
  std::vector<StepMetrics> rows;
  std::optional<Summary> summary;  // nothing while the run goes on, or when it broke off
  std::string config;
  double seconds = 0;  // sum of step times
};

Run read_run(const std::filesystem::path& folder) {
  Run run;
  run.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  run.rows = read_metrics(folder / "metrics.jsonl");
  if (std::filesystem::exists(folder / "summary.json")) run.summary = read_summary(folder / "summary.json");
  if (std::filesystem::exists(folder / "config.toml")) run.config = read_file(folder / "config.toml");
  if (run.rows.empty() && !run.summary)
    fail(ErrorCode::input, folder.string(), ": has no finished step yet; report the run once it has");
  for (const auto& row : run.rows) run.seconds += row.step_s;
  return run;
}

std::vector<Run> read_runs(const std::vector<std::filesystem::path>& folders) {
  std::vector<Run> runs;
  std::map<std::string, int> uses;
  for (const auto& folder : folders) ++uses[runs.emplace_back(read_run(folder)).name];
  for (size_t i = 0; i < runs.size(); ++i)
    if (uses[runs[i].name] > 1) runs[i].name = folders[i].string();
  return runs;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double median_of(const Run& run, double StepMetrics::*part) {
  std::vector<double> values;
  for (const auto& row : run.rows) values.push_back(row.*part);
  return median(std::move(values));
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

// The loss after that much training time: the mean of the last rows until then, since one batch's loss is
// noisy.
std::string loss_after(const Run& run, double seconds) {
  constexpr size_t kRows = 10;
  double elapsed = 0;
  size_t end = 0;
  while (end < run.rows.size() && elapsed + run.rows[end].step_s <= seconds * (1 + 1e-9))
    elapsed += run.rows[end++].step_s;
  if (end == 0) return "–";
  const size_t begin = end > kRows ? end - kRows : 0;
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += run.rows[i].loss;
  return fixed(sum / static_cast<double>(end - begin), 4);
}

// One figure of every run; with `ratio`, that of each further run to the first one follows it.
struct Figure {
  std::string label;
  std::function<std::string(const Run&)> text;
  std::function<double(const Run&)> ratio;
};

// A figure that only a finished run has.
std::function<std::string(const Run&)> if_finished(std::function<std::string(const Summary&)> text) {
  return [text = std::move(text)](const Run& run) { return run.summary ? text(*run.summary) : "–"; };
}

std::vector<Figure> figures(double common_seconds) {
  const auto seconds_part = [](double StepMetrics::*part) {
    return [part](const Run& run) { return for_people(Seconds{median_of(run, part)}); };
  };
  const auto finished = [](const Run& run, auto part) {
    return run.summary ? static_cast<double>((*run.summary).*part) : 0;
  };
  return {
      {"Codec", if_finished([](const Summary& s) { return s.codec; }), {}},
      {"Strategy", if_finished([](const Summary& s) { return s.strategy; }), {}},
      {"Ranks",
       if_finished([](const Summary& s) { return cat(s.world_size, " × ", s.device, ", ", s.transport); }),
       {}},
      {"Steps", [](const Run& run) { return cat(run.rows.empty() ? 0 : run.rows.back().step); }, {}},
      {"Final loss", if_finished([](const Summary& s) { return fixed(s.final_loss, 4); }), {}},
      {"Held-out loss",
       if_finished([](const Summary& s) { return s.eval_loss ? fixed(*s.eval_loss, 4) : "–"; }),
       {}},
      {cat("Loss after ", for_people(Seconds{common_seconds}), " of training"),
       [common_seconds](const Run& run) { return loss_after(run, common_seconds); },
       {}},
      {"Training time", [](const Run& run) { return for_people(Seconds{run.seconds}); },
       [](const Run& run) { return run.seconds; }},
      {"Step, median", seconds_part(&StepMetrics::step_s),
       [](const Run& run) { return median_of(run, &StepMetrics::step_s); }},
      {"Waiting for the network, median", seconds_part(&StepMetrics::exposed_comm_s), {}},
      {"Codec work, median", seconds_part(&StepMetrics::codec_s), {}},
      {"Samples/s",
       if_finished([](const Summary& s) { return fixed(s.samples_per_s, s.samples_per_s < 100 ? 1 : 0); }),
       [finished](const Run& run) { return finished(run, &Summary::samples_per_s); }},
      {"Model Gflop/s",
       if_finished([](const Summary& s) { return fixed(s.model_flops_per_s / 1e9, 1); }),
       {}},
      {"Sent per step and rank",
       if_finished([](const Summary& s) { return for_people(Bytes{s.bytes_sent_per_step}); }),
       [finished](const Run& run) { return finished(run, &Summary::bytes_sent_per_step); }},
      {"Peak memory", if_finished([](const Summary& s) { return for_people(Bytes{s.peak_rss_bytes}); }), {}},
  };
}

std::string table(const std::vector<Run>& runs) {
  double common_seconds = runs.front().seconds;
  for (const auto& run : runs) common_seconds = std::min(common_seconds, run.seconds);
  std::string html = "<div class='wide'><table><thead><tr><th></th>";
  for (const auto& run : runs) html += "<th>" + escaped(run.name) + "</th>";
  html += "</tr></thead><tbody>\n";
  for (const auto& figure : figures(common_seconds)) {
    html += "<tr><th>" + escaped(figure.label) + "</th>";
    for (const auto& run : runs) {
      html += "<td>" + escaped(figure.text(run));
      const double first = figure.ratio ? figure.ratio(runs.front()) : 0;
      if (&run != &runs.front() && first > 0)
        html += " <small>" + fixed(figure.ratio(run) / first, 2) + "×</small>";
      html += "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

LineChart loss_chart(const std::vector<Run>& runs, bool over_seconds, bool evaluation) {
  LineChart chart{
      evaluation ? "Held-out loss" : "Training loss", over_seconds ? "seconds of training" : "step", {}};
  for (const auto& run : runs) {
    Series series{run.name, {}};
    double elapsed = 0;
    for (const auto& row : run.rows) {
      elapsed += row.step_s;
      const double x = over_seconds ? elapsed : static_cast<double>(row.step);
      if (!evaluation) series.points.push_back({x, row.loss});
      if (evaluation && row.eval_loss) series.points.push_back({x, *row.eval_loss});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

LineChart step_chart(const std::vector<Run>& runs) {
  LineChart chart{"Seconds per step", "step", {}};
  for (const auto& run : runs) {
    Series series{run.name, {}};
    for (const auto& row : run.rows) series.points.push_back({static_cast<double>(row.step), row.step_s});
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// Codec work is not stacked: most of it runs beside the backward pass.
BarChart split_chart(const std::vector<Run>& runs) {
  BarChart chart{"Where a step goes", {"forward", "backward", "optimizer", "network", "other"}, {}};
  for (const auto& run : runs) {
    Bar bar{run.name, {}};
    double rest = median_of(run, &StepMetrics::step_s);
    for (const auto part : {&StepMetrics::forward_s, &StepMetrics::backward_s, &StepMetrics::optimizer_s,
                            &StepMetrics::exposed_comm_s}) {
      bar.parts.push_back(std::max(median_of(run, part), 0.0));
      rest -= bar.parts.back();
    }
    bar.parts.push_back(std::max(rest, 0.0));
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

bool any_evaluation(const std::vector<Run>& runs) {
  return std::ranges::any_of(runs, [](const Run& run) {
    return std::ranges::any_of(run.rows, [](const StepMetrics& row) { return row.eval_loss.has_value(); });
  });
}

std::string charts(const std::vector<Run>& runs) {
  std::vector<std::string> all{to_svg(loss_chart(runs, false, false)), to_svg(loss_chart(runs, true, false)),
                               to_svg(split_chart(runs)), to_svg(step_chart(runs))};
  if (any_evaluation(runs)) all.insert(all.begin() + 2, to_svg(loss_chart(runs, true, true)));
  std::string html = "<div class='charts'>\n";
  for (const auto& svg : all) html += "<figure>" + svg + "</figure>\n";
  return html + "</div>\n";
}

std::string configurations(const std::vector<Run>& runs) {
  std::string html;
  for (const auto& run : runs)
    if (!run.config.empty())
      html += "<details><summary>" + escaped(run.name) + ": config.toml</summary><pre>" +
              escaped(run.config) + "</pre></details>\n";
  return html;
}

}  // namespace

std::string report_html(const std::vector<std::filesystem::path>& folders) {
  TRIREME_CHECK(!folders.empty());
  const auto runs = read_runs(folders);
  std::string title = runs.front().name;
  for (size_t i = 1; i < runs.size(); ++i) title += " and " + runs[i].name;
  return cat("<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n",
             "<meta name='viewport' content='width=device-width, initial-scale=1'>\n<title>", escaped(title),
             " · Trireme</title>\n<style>", kStyle, "</style>\n</head>\n<body>\n<h1>", escaped(title),
             "</h1>\n", table(runs), runs.size() > 1 ? "<p>× compares with the first run.</p>\n" : "",
             "<h2>Curves</h2>\n", charts(runs),
             "<p>Curves of more than 400 steps show means of neighbouring steps.</p>\n", configurations(runs),
             "</body>\n</html>\n");
}

}  // namespace trireme::train
