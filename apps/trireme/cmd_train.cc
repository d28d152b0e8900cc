#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "commands.h"
#include "gpus.h"
#include "launch.h"
#include "local_ranks.h"
#include "loss_guard.h"
#include "meeting.h"
#include "report_failure.h"
#include "stop_signals.h"
#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/codec/codec.h"
#include "trireme/train/checkpoint_folder.h"
#include "trireme/train/options.h"
#include "trireme/train/trainer_torch.h"

namespace trireme::app {
namespace {
namespace fs = std::filesystem;

struct Arguments {
  std::string config;
  std::vector<std::string> sets;
  int nproc = 0, max_restarts = 0;
  std::string out, resume;
  bool help_config = false;
};

constexpr const char* kExample =
    "Example:\n"
    "  trireme train examples/voyage/train.toml --set model.graph=model.pt2 --set train.steps=20 \\\n"
    "      --nproc 2 --out runs/first\n"
    "Without --nproc the rank comes from the launcher: torchrun --no-python, mpirun, srun, PET_* or "
    "SkyPilot\n"
    "variables, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set by hand; else it is one process.";

// For a rank to end by itself once another one is lost: to reach its next exchange, and to finish writing.
constexpr double kSecondsToEnd = 15;

void end_process(const Failure& why) {
  ::_exit(report_failure(why.code, cat(why.message, "; this rank did not end by itself within ",
                                       kSecondsToEnd, " s after that")));
}

// The configuration and what is derived from its text.
struct Resolved {
  train::Config config;
  std::string text, digest;
};

Resolved resolve(const Arguments& arguments, const codec::CodecSet& codecs) {
  Resolved resolved;
  OptionList list;
  resolved.config.list(list);
  list.read_toml(arguments.config);
  for (const auto& assignment : arguments.sets) list.set(assignment);
  resolved.config.check(codecs);
  resolved.text = list.to_toml();
  resolved.digest = list.digest_text();
  return resolved;
}

fs::path default_out(const std::string& config) {
  char stamp[32];
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", ::localtime_r(&now, &local));
  return fs::path("runs") / cat(fs::path(config).stem().string(), "-", stamp);
}

// --out, else the folder of the run that is resumed as a whole, else a new one. Other ranks than 0 write only
// where they are told to.
fs::path choose_out(const Arguments& arguments, int rank) {
  if (!arguments.out.empty()) return arguments.out;
  if (rank > 0) return {};
  if (!arguments.resume.empty() && fs::is_directory(fs::path(arguments.resume) / "checkpoints")) {
    return arguments.resume;
  }
  return default_out(arguments.config);
}

// A fresh run beside older checkpoints would leave two trainings in one folder, and --resume could pick the
// wrong one.
void check_out(const fs::path& out, bool resumes) {
  if (fs::exists(out) && !fs::is_directory(out))
    fail(ErrorCode::usage, "--out ", out.string(), ": is a file, a folder is needed");
  if (!resumes && fs::exists(out / "checkpoints") && !fs::is_empty(out / "checkpoints")) {
    fail(ErrorCode::usage, "--out ", out.string(),
         ": holds checkpoints of an earlier run; continue it with --resume ", out.string(),
         ", or name another folder");
  }
}

int start_local_ranks(const Arguments& arguments, const LaunchPlan& launch, const fs::path& out) {
  LocalJob job{
      .arguments = {"train", arguments.config}, .plan = launch, .max_restarts = arguments.max_restarts};
  if (!out.empty()) job.arguments.insert(job.arguments.end(), {"--out", out.string()});
  for (const auto& assignment : arguments.sets)
    job.arguments.insert(job.arguments.end(), {"--set", assignment});
  if (!arguments.resume.empty()) job.arguments.insert(job.arguments.end(), {"--resume", arguments.resume});
  log::info(cat("starting ", to_text(launch), out.empty() ? "" : "; output folder ", out.string()));
  return run_local_ranks(job);
}

// After a restart the newest checkpoint of this run, where it got so far; else what --resume says. The last
// step's does not count: it may have been written before the summary was, so that step is made again.
std::optional<fs::path> choose_resume(const Arguments& arguments, const LaunchPlan& launch,
                                      const fs::path& out, int64_t last_step) {
  if (launch.restarts > 0 && !out.empty()) {
    auto steps = train::checkpoint_steps(out / "checkpoints");
    std::erase_if(steps, [&](int64_t step) { return step >= last_step; });
    if (!steps.empty()) return train::checkpoint_folder(out / "checkpoints", steps.back());
  }
  if (arguments.resume.empty()) return {};
  return arguments.resume;
}

int run_rank(const Arguments& arguments, const LaunchPlan& launch, const Resolved& resolved,
             const codec::CodecSet& codecs, const fs::path& out) {
  if (launch.world > 1 && !launch.prefixed_output) log::set_tag(cat("rank ", launch.rank));
  log::info(cat(to_text(launch), out.empty() ? "" : "; output folder ", out.string()));
  train::StopFlag stop;
  const StopWatch watch([&stop](int signal) {
    if (!stop.heeded) return false;
    log::info(cat("SIG", ::sigabbrev_np(signal), ": stopping after this step; once more ends at once"));
    stop.requested = true;
    return true;
  });
  train::RankContext context;
  context.rank = launch.rank;
  context.world = launch.world;
  context.local_rank = launch.local_rank;
  context.local_world = launch.local_world;
  context.rendezvous = meet(launch, resolved.config.transport);
  std::optional<LossGuard> guard;
  if (context.rendezvous) guard.emplace(*context.rendezvous, Seconds{kSecondsToEnd}, end_process);
  context.out = out;
  context.resume = choose_resume(arguments, launch, out, resolved.config.train.steps);
  context.codecs = &codecs;
  context.stop = &stop;
  context.terminal = ::isatty(STDERR_FILENO) != 0;
  context.resolved_config = resolved.text;
  context.config_digest = resolved.digest;
  train::train(resolved.config, context);
  return 0;
}

int print_config_help() {
  train::Config config;
  OptionList list;
  config.list(list);
  std::fputs(list.help_text().c_str(), stdout);
  return 0;
}

LaunchPlan plan_launch(const Arguments& arguments) {
  LaunchPlan plan = resolve_launch(
      environment, {.nproc = arguments.nproc, .gpu_count = gpu_count, .parent_process = ::getppid()});
  if (arguments.max_restarts == 0) return plan;
  // A single rank gets a process of its own, so that somebody is left to start it again.
  if (arguments.nproc == 1 && plan.world == 1) plan.start_ranks = 1;
  if (plan.start_ranks == 0 || plan.start_ranks < plan.world) {
    fail(ErrorCode::usage, "--max-restarts starts local ranks again, but this is ", to_text(plan),
         ": give --nproc as well, or let the launcher restart");
  }
  return plan;
}

int run(const Arguments& arguments) {
  if (arguments.help_config) return print_config_help();
  if (arguments.config.empty()) fail(ErrorCode::usage, "train needs a CONFIG.toml; see trireme train --help");
  const auto launch = plan_launch(arguments);
  const auto codecs = codec::built_in_codecs();
  const auto resolved = resolve(arguments, codecs);
  const auto out = choose_out(arguments, launch.rank);
  // Local ranks need not look: their launcher has. No rank writes before all have come this far.
  if (!out.empty() && !launch.prefixed_output && launch.restarts == 0)
    check_out(out, !arguments.resume.empty());
  if (launch.rank == 0 && !launch.prefixed_output) {
    for (const auto& what : resolved.config.without_effect(launch.world)) log::warning(what);
  }
  if (launch.start_ranks > 0) return start_local_ranks(arguments, launch, out);
  return run_rank(arguments, launch, resolved, codecs, out);
}

}  // namespace

std::function<int()> setup_train(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_option("config", arguments->config, "configuration file")->type_name("CONFIG.toml");
  app.add_option("--set", arguments->sets, "change one key, e.g. --set train.steps=20; may be repeated")
      ->type_name("SECTION.KEY=VALUE")
      ->expected(1)
      ->take_all();
  app.add_option("--nproc", arguments->nproc, "start N processes on this machine")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app.add_option("--max-restarts", arguments->max_restarts,
                 "with --nproc: go on from the last checkpoint after a failure, at most N times")
      ->type_name("N")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--out", arguments->out, "folder for results; default runs/CONFIG-TIME")->type_name("DIR");
  app.add_option("--resume", arguments->resume,
                 "continue from a run's folder or one of its checkpoints/step_N")
      ->type_name("DIR");
  app.add_flag("--help-config", arguments->help_config,
               "list every key of CONFIG.toml with default, unit and range");
  app.footer(kExample);
  return [arguments] { return run(*arguments); };
}

}  // namespace trireme::app
