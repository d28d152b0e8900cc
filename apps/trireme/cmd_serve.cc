// `trireme serve CONFIG.toml`: models behind the Open Inference Protocol until SIGTERM or SIGINT. SIGHUP
// reloads them.
#include <malloc.h>
#include <pthread.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "commands.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/serve/http_server.h"
#include "trireme/serve/pt2_backend_torch.h"

namespace trireme::app {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> sets;
  bool help_config = false;
};

constexpr const char* kExample =
    "Example:\n"
    "  python -m trireme.export mlp --inference -o mlp.pt2\n"
    "  printf '[[model]]\\nname = \"mlp\"\\npath = \"mlp.pt2\"\\n' > serve.toml\n"
    "  trireme serve serve.toml &\n"
    "  curl localhost:8000/v2/models/mlp\n"
    "SIGTERM finishes what runs and exits 0; SIGHUP loads the models again. Guide: docs/guides/serve.md";

serve::ServeConfig read_config(const Arguments& arguments) {
  serve::ServeConfig config;
  OptionList list;
  config.list(list);
  list.read_toml(arguments.config);
  for (const auto& assignment : arguments.sets) list.set(assignment);
  config.check();
  return config;
}

int print_config_help() {
  serve::ServeConfig config;
  OptionList list;
  config.list(list);
  std::fputs(list.help_text().c_str(), stdout);
  return 0;
}

// Each thread of glibc's keeps a heap of its own, and large blocks that come and go would stay in all of
// them.
void keep_memory_flat() {
  ::mallopt(M_ARENA_MAX, 4);
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
}

int64_t threads_per_instance(const serve::ServeConfig& config) {
  int64_t instances = 0;
  for (const auto& model : config.models) instances += model.instances;
  return std::max<int64_t>(1, std::thread::hardware_concurrency() / instances);
}

void reload(serve::Repository& models) {
  for (const auto& state : models.states()) {
    try {
      models.load(state.name);
    } catch (const std::exception& e) {
      log::error(cat("model ", state.name, " is not reloaded, the old one goes on: ", e.what()));
    }
  }
}

int run(const Arguments& arguments) {
  if (arguments.help_config) return print_config_help();
  if (arguments.config.empty()) fail(ErrorCode::usage, "serve needs a CONFIG.toml; see trireme serve --help");
  const auto config = read_config(arguments);
  keep_memory_flat();
  // Blocked before any thread exists, so that all inherit it and the signals wait for sigwait below.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int64_t threads = threads_per_instance(config);
  auto models = std::make_shared<serve::Repository>(
      config.models,
      [threads](const serve::ModelOptions& options) { return serve::load_pt2(options, threads); });
  serve::Service service(models, TRIREME_VERSION);
  serve::HttpServer http(service, config.server);
  log::info(
      cat("HTTP on ", config.server.host, ":", http.port(), "; loading ", config.models.size(), " model(s)"));
  models->load_all();
  log::info("ready");
  int signal = 0;
  while (::sigwait(&signals, &signal) == 0 && signal == SIGHUP) reload(*models);
  log::info(cat("SIG", ::sigabbrev_np(signal), ": finishing what was taken, at most ",
                to_text(config.server.drain_timeout), "; once more ends at once"));
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  service.start_drain();
  const bool whole = http.drain(config.server.drain_timeout.value);
  models->stop();
  if (!whole) log::warning("connections were still open after server.drain_timeout and are cut");
  return 0;
}

}  // namespace

std::function<int()> setup_serve(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("config", arguments->config, "configuration file")->type_name("CONFIG.toml");
  app.add_option("--set", arguments->sets,
                 "change one key, e.g. --set server.http_port=9000; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->expected(1)
      ->take_all();
  app.add_flag("--help-config", arguments->help_config,
               "list every key of CONFIG.toml with default, unit and range");
  app.footer(kExample);
  return [arguments] { return run(*arguments); };
}

}  // namespace trireme::app
