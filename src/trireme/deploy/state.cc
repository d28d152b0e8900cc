#include "trireme/deploy/state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json_problem.h"
#include "trireme/base/log.h"
#include "trireme/spec/json_guard.h"

namespace trireme::deploy {
namespace {

using nlohmann::json;

constexpr const char* kKind = "search_state";
constexpr int kVersion = 1;

json to_json(const Probe& p) {
  json out{{"instance", p.deployment.instance},
           {"nodes", p.deployment.nodes},
           {"samples_per_s", p.samples_per_s},
           {"relative_sd", p.relative_sd},
           {"hours", p.hours},
           {"usd", p.usd},
           {"round", p.round},
           {"samples_trained", p.samples_trained},
           {"ended_early", p.ended_early},
           {"interrupted", p.interrupted}};
  if (p.failed()) out["error"] = p.error;
  return out;
}

Probe probe_from(const json& in) {
  Probe p;
  p.deployment = {in.at("instance").get<std::string>(), in.at("nodes").get<int64_t>()};
  p.samples_per_s = in.at("samples_per_s").get<double>();
  p.relative_sd = in.at("relative_sd").get<double>();
  p.hours = in.at("hours").get<double>();
  p.usd = in.at("usd").get<double>();
  p.round = in.at("round").get<int64_t>();
  p.samples_trained = in.at("samples_trained").get<int64_t>();
  p.ended_early = in.at("ended_early").get<bool>();
  p.interrupted = in.at("interrupted").get<bool>();
  p.error = in.value("error", std::string());
  return p;
}

json to_json(const Launch& l) {
  return {{"instance", l.deployment.instance},
          {"nodes", l.deployment.nodes},
          {"samples_done", l.samples_done},
          {"hours", l.hours},
          {"usd", l.usd},
          {"ended", l.ended}};
}

Launch launch_from(const json& in) {
  return {{in.at("instance").get<std::string>(), in.at("nodes").get<int64_t>()},
          in.at("samples_done").get<double>(),
          in.at("hours").get<double>(),
          in.at("usd").get<double>(),
          in.at("ended").get<std::string>()};
}

template <typename T>
json array_of(const std::vector<T>& values) {
  json out = json::array();
  for (const auto& v : values) out.push_back(to_json(v));
  return out;
}

}  // namespace

StateFile::StateFile(std::filesystem::path path, std::string job)
    : path_(std::move(path)), job_(std::move(job)) {
  const auto lock_path = path_.string() + ".lock";
  lock_ = ::open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (lock_ < 0) fail(ErrorCode::io, lock_path, ": ", std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(lock_);
    if (error != EWOULDBLOCK) fail(ErrorCode::io, lock_path, ": ", std::strerror(error));
    fail(ErrorCode::usage, path_.string(),
         ": another search works on this state; wait for it, or give this one its own with --state");
  }
  try {
    if (std::filesystem::exists(path_)) load();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

StateFile::~StateFile() {
  ::close(lock_);
}

void StateFile::load() {
  const auto text = read_file(path_);
  try {
    spec::check_json_depth(text);
    const auto in = json::parse(text);
    if (in.at("kind") != kKind) fail(ErrorCode::input, path_.string(), ": not a search's state");
    if (in.at("version").get<int>() > kVersion)
      fail(ErrorCode::input, path_.string(), ": version ", in.at("version").get<int>(),
           " of a search's state, this program reads up to ", kVersion);
    if (in.at("job") != job_)
      fail(ErrorCode::usage, path_.string(),
           ": belongs to another job (the job file, its offers or its table changed); remove it to start "
           "anew, or "
           "give another with --state");
    for (const auto& p : in.at("probes")) probes_.push_back(probe_from(p));
    for (const auto& p : in.at("running")) {
      auto probe = probe_from(p);
      probe.error = "the search was cut off while this probe ran; charged as planned";
      probe.interrupted = true;
      log::warning(cat(to_text(probe.deployment), ": ", probe.error));
      probes_.push_back(std::move(probe));
    }
    for (const auto& l : in.at("launches")) launches_.push_back(launch_from(l));
  } catch (const json::exception& error) {
    fail(ErrorCode::input, path_.string(), ": broken (", json_problem(error),
         "); restore it, or remove it to start anew (its probes are then paid again)");
  }
  save();
}

void StateFile::save() const {
  const json out{{"kind", kKind},
                 {"version", kVersion},
                 {"job", job_},
                 {"probes", array_of(probes_)},
                 {"running", array_of(running_)},
                 {"launches", array_of(launches_)}};
  write_file(path_, out.dump(1) + "\n");
}

void StateFile::begin(std::span<const Probe> planned) {
  running_.assign(planned.begin(), planned.end());
  save();
}

void StateFile::end(std::span<const Probe> finished) {
  probes_.insert(probes_.end(), finished.begin(), finished.end());
  running_.clear();
  save();
}

void StateFile::set_launches(std::vector<Launch> launches) {
  launches_ = std::move(launches);
  save();
}

}  // namespace trireme::deploy
