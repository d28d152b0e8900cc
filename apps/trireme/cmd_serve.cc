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
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/serve/grpc_server.h"
#include "trireme/serve/http_server.h"
#include "trireme/serve/pt2_backend_torch.h"

namespace trireme::app {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> sets;
  bool help_config = false;
  std::string profile_model, out, instance_type = "this machine";
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

// Blocked before any thread exists, so that all inherit it and the signals wait for sigwait.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// Returns when the server is to stop.
void serve_until_stopped(const sigset_t& signals, serve::Repository& models, const std::string& limit) {
  int signal = 0;
  while (::sigwait(&signals, &signal) == 0 && signal == SIGHUP) reload(models);
  log::info(cat("SIG", ::sigabbrev_np(signal), ": finishing what was taken, at most ", limit,
                "; once more ends at once"));
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

// Readiness first, then the doors, then what is inside.
void drain(serve::Service& service, serve::HttpServer& http, serve::GrpcServer* grpc, double timeout_s) {
  service.start_drain();
  std::thread grpc_drain([&] {
    if (grpc != nullptr) grpc->drain(timeout_s);
  });
  if (!http.drain(timeout_s))
    log::warning("connections were still open after server.drain_timeout and are cut");
  grpc_drain.join();
  service.models().stop();
}

// Measures one model of the configuration and writes its profile.
int write_profile(const Arguments& arguments, const serve::ServeConfig& config) {
  for (const auto& model : config.models) {
    if (model.name != arguments.profile_model) continue;
    const int64_t threads = threads_per_instance(config);
    const auto profile =
        serve::profile_model(model, serve::load_model(model, threads), arguments.instance_type, threads);
    const std::string text = serve::to_json(profile);
    if (arguments.out.empty())
      std::fputs(text.c_str(), stdout);
    else
      write_file(arguments.out, text);
    return 0;
  }
  fail(ErrorCode::usage, "--profile-model ", arguments.profile_model, ": ", arguments.config,
       " has no such model");
}

int run(const Arguments& arguments) {
  if (arguments.help_config) return print_config_help();
  if (arguments.config.empty()) fail(ErrorCode::usage, "serve needs a CONFIG.toml; see trireme serve --help");
  const auto config = read_config(arguments);
  if (!arguments.profile_model.empty()) return write_profile(arguments, config);
  const auto& server = config.server;
  keep_memory_flat();
  const sigset_t signals = block_signals();
  const int64_t threads = threads_per_instance(config);
  auto models = std::make_shared<serve::Repository>(
      config.models,
      [threads](const serve::ModelOptions& options) { return serve::load_model(options, threads); });
  serve::Service service(models, TRIREME_VERSION);
  serve::HttpServer http(service, server);
  std::unique_ptr<serve::GrpcServer> grpc;
  if (server.grpc_port >= 0) grpc = std::make_unique<serve::GrpcServer>(service, server);
  log::info(cat("HTTP on ", server.host, ":", http.port(), grpc ? cat(", gRPC on port ", grpc->port()) : "",
                "; loading ", config.models.size(), " model(s)"));
  models->load_all();
  log::info("ready");
  serve_until_stopped(signals, *models, to_text(server.drain_timeout));
  drain(service, http, grpc.get(), server.drain_timeout.value);
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
  app.add_option("--profile-model", arguments->profile_model,
                 "measure this model instead of serving, and write its serving_profile")
      ->type_name("NAME");
  app.add_option("-o,--out", arguments->out, "of --profile-model; default: standard output")
      ->type_name("FILE");
  app.add_option("--instance-type", arguments->instance_type,
                 "name of this kind of machine, for the profile");
  app.footer(kExample);
  return [arguments] { return run(*arguments); };
}

}  // namespace trireme::app
