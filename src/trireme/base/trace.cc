#include "trireme/base/trace.h"

#include <map>
#include <nlohmann/json.hpp>

namespace trireme {

void Tracer::add(std::string lane, std::string name, Clock::Nanoseconds begin, Clock::Nanoseconds end) {
  std::lock_guard lock(mutex_);
  if (events_.size() >= max_events_) {
    ++dropped_;
    return;
  }
  events_.push_back({std::move(lane), std::move(name), begin, end});
}

std::string Tracer::to_json() const {
  std::lock_guard lock(mutex_);
  using nlohmann::json;
  json list = json::array();
  std::map<std::string, int> lanes;
  const auto microseconds = [](Clock::Nanoseconds t) { return static_cast<double>(t.count()) / 1e3; };
  for (const auto& e : events_) {
    const auto [lane, fresh] = lanes.try_emplace(e.lane, static_cast<int>(lanes.size()) + 1);
    if (fresh) {
      list.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", rank_},
                      {"tid", lane->second},
                      {"args", {{"name", e.lane}}}});
    }
    list.push_back({{"ph", "X"},
                    {"name", e.name},
                    {"pid", rank_},
                    {"tid", lane->second},
                    {"ts", microseconds(e.begin)},
                    {"dur", microseconds(e.end - e.begin)}});
  }
  return json{{"traceEvents", list},
              {"displayTimeUnit", "ms"},
              {"otherData", {{"rank", rank_}, {"dropped", dropped_}}}}
      .dump();
}

}  // namespace trireme
