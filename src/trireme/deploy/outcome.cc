#include "trireme/deploy/outcome.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::deploy {
namespace {

using nlohmann::json;

json to_json(const Amount& amount) {
  return {{"hours", amount.hours}, {"usd", amount.usd}};
}

json to_json(const Probe& p) {
  json out{{"instance", p.deployment.instance},
           {"nodes", p.deployment.nodes},
           {"samples_per_s", p.failed() ? json(nullptr) : json(p.samples_per_s)},
           {"hours", p.hours},
           {"usd", p.usd}};
  if (p.relative_sd > 0) out["relative_sd"] = p.relative_sd;
  if (p.samples_trained > 0) out["samples_trained"] = p.samples_trained;
  if (p.ended_early) out["ended_early"] = true;
  if (p.failed()) out["error"] = p.error;
  return out;
}

std::string cell(double value, int digits, int width) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << std::setw(width) << value;
  return out.str();
}

std::string padded(const std::string& text, size_t width) {
  return text.size() >= width ? text : text + std::string(width - text.size(), ' ');
}

std::string amounts(const Amount& a) {
  return cat(cell(a.hours, 2, 0), " h, $", cell(a.usd, 2, 0));
}

size_t name_width(const SearchSpace& space) {
  size_t width = 10;
  for (const auto& c : space.candidates) width = std::max(width, to_text(c.deployment).size());
  return width;
}

}  // namespace

std::string to_json(const Outcome& outcome, const SearchSetup& setup, const std::string& method) {
  json out{{"kind", "search_result"},
           {"version", 1},
           {"method", method},
           {"feasible", outcome.feasible},
           {"chosen", nullptr},
           {"predicted", nullptr},
           {"spent", to_json(outcome.spent)},
           {"total", to_json(outcome.total)},
           {"stop_reason", outcome.stop_reason},
           {"notes", outcome.notes},
           {"samples_left", outcome.samples_left},
           {"probes", json::array()}};
  if (outcome.chosen) {
    const auto& c = setup.space->candidates[outcome.chosen->candidate];
    out["chosen"] = {{"instance", c.deployment.instance},
                     {"nodes", c.deployment.nodes},
                     {"spot", c.markets[outcome.chosen->market].spot}};
    out["predicted"] = to_json(outcome.predicted);
  }
  for (const auto& probe : outcome.probes) out["probes"].push_back(to_json(probe));
  return out.dump(2) + "\n";
}

std::string to_table(const Outcome& outcome, const SearchSetup& setup) {
  const size_t width = name_width(*setup.space);
  std::string out = cat("    ", padded("deployment", width), "   samples/s     hours       USD\n");
  for (size_t i = 0; i < outcome.probes.size(); ++i) {
    const auto& p = outcome.probes[i];
    out += cat(cell(static_cast<double>(i + 1), 0, 3), " ", padded(to_text(p.deployment), width), " ",
               p.failed() ? "     failed" : cell(p.samples_per_s, 1, 11), cell(p.hours, 3, 10),
               cell(p.usd, 3, 10),
               p.failed()      ? "  " + p.error
               : p.ended_early ? "  ended early"
                               : "",
               "\n");
  }
  for (const auto& note : outcome.notes) out += "note: " + note + "\n";
  out += cat("stopped: ", outcome.stop_reason, "\nspent on probes: ", amounts(outcome.spent), "\n");
  if (!outcome.chosen) return out + "no feasible deployment is known\n";
  const auto& c = setup.space->candidates[outcome.chosen->candidate];
  return out + cat("chosen: ", to_text(c.deployment), c.markets[outcome.chosen->market].spot ? " (spot)" : "",
                   "; training ", amounts(outcome.predicted), "; total ", amounts(outcome.total),
                   outcome.feasible ? "" : "; NOT within the limits", "\n");
}

std::string to_text(const Snapshot& snapshot, const Decision& decision, size_t rows) {
  const auto& space = *snapshot.space;
  std::string out = cat("-- after ", snapshot.probes.size(),
                        " probes: ", decision.probes.empty() ? "stop, " : "", decision.reason, "\n");
  for (const size_t index : decision.probes)
    out += "   probe " + to_text(space.candidates[index].deployment) + "\n";
  for (const auto& note : decision.notes) out += "   " + note + "\n";
  if (decision.views.empty() || decision.views.front().belief.sd == 0) return out;
  std::vector<const View*> views;
  for (const auto& view : decision.views) views.push_back(&view);
  std::stable_sort(views.begin(), views.end(),
                   [](const View* a, const View* b) { return a->score > b->score; });
  const size_t width = name_width(space);
  const bool time = snapshot.goal.minimise == Goal::Minimise::time;
  out += cat("   ", padded("candidate", width),
             "  samples/s   95 % from        to   probe $  probe h  saves ", time ? "h" : "$", "\n");
  for (size_t i = 0; i < std::min(rows, views.size()); ++i) {
    const auto& v = *views[i];
    const auto& c = space.candidates[v.candidate];
    out +=
        cat("   ", padded(to_text(c.deployment), width), cell(v.belief.speed(), 1, 11),
            cell(v.belief.quantile(-1.96), 1, 12), cell(v.belief.quantile(1.96), 1, 10),
            cell(c.probe_usd, 3, 10), cell(c.probe_hours, 2, 9), cell(v.gain, 2, 9), "  ", v.verdict, "\n");
  }
  if (views.size() > rows) out += cat("   … and ", views.size() - rows, " more\n");
  return out;
}

}  // namespace trireme::deploy
