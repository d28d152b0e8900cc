#include "trireme/deploy/sky.h"

#include <algorithm>
#include <cctype>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::deploy {
namespace {

constexpr double kDownSeconds = 600;

// A YAML scalar in double quotes.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// A literal block; lines keep their own indentation.
std::string block(const std::string& text) {
  std::string out = "|\n";
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += "  " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string to_yaml(const SkyTask& task, const ProbeRequest& request) {
  std::string out = "resources:\n";
  if (!task.cloud.empty()) out += "  cloud: " + quoted(task.cloud) + "\n";
  if (!task.region.empty()) out += "  region: " + quoted(task.region) + "\n";
  out += "  instance_type: " + quoted(request.deployment.instance) + "\n";
  out += cat("  use_spot: ", request.spot ? "true" : "false", "\n");
  out += cat("num_nodes: ", request.deployment.nodes, "\n");
  if (!task.workdir.empty()) out += "workdir: " + quoted(task.workdir) + "\n";
  if (!task.environment.empty()) {
    out += "envs:\n";
    for (const auto& pair : task.environment) {
      const auto equals = pair.find('=');
      out += "  " + pair.substr(0, equals) + ": " + quoted(pair.substr(equals + 1)) + "\n";
    }
  }
  if (!task.setup.empty()) out += "setup: " + block(task.setup);
  return out + "run: " + block(task.run);
}

std::string cluster_name(const Deployment& deployment, const std::string& job) {
  std::string name = cat("trireme-", job, "-", deployment.instance, "-", deployment.nodes);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '-');
  return name;
}

std::vector<std::vector<std::string>> sky_commands(const std::filesystem::path& yaml,
                                                   const std::string& cluster) {
  return {{"sky", "launch", "--yes", "--cluster", cluster, yaml.string()}, {"sky", "down", "--yes", cluster}};
}

Measurement SkyProfiler::measure(const ProbeRequest& request) {
  const auto start = clock_.now();
  const auto cluster = cluster_name(request.deployment, job_);
  std::filesystem::create_directories(folder_);
  const auto yaml = folder_ / (cluster + ".yaml");
  write_file(yaml, to_yaml(task_, request));
  const auto commands = sky_commands(yaml, cluster);
  auto m = watch(*processes_.start(commands[0]), request, rules_, clock_);
  const auto down = processes_.start(commands[1]);
  // A search that is being stopped still takes its cluster down.
  if (!down->finish(Deadline::after(clock_, kDownSeconds)) || down->exit_code() != 0)
    fail(ErrorCode::io, "sky down ", cluster,
         " failed: take it down by hand, it may still cost money: ", down->last_error().substr(0, 200));
  m.hours = std::chrono::duration<double>(clock_.now() - start).count() / 3600;
  return m;
}

}  // namespace trireme::deploy
