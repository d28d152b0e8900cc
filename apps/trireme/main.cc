#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "commands.h"
#include "report_failure.h"
#include "torch_log.h"
#include "trireme/base/error.h"

namespace trireme::app {
namespace {

constexpr const char* kExample =
    "Example:\n"
    "  python -m trireme.export gpt --layers 2 --width 64 --heads 2 --context 64 -o model.pt2\n"
    "  trireme train examples/voyage/train.toml --set model.graph=model.pt2 --set data.context=64 \\\n"
    "      --set train.steps=20 --nproc 2 --out runs/first\n"
    "  trireme report runs/first -o report.html\n"
    "Exit code: 0 success, 2 wrong call or wrong input, 1 failure while running.";

// Everything that goes wrong becomes one line on standard error.
int report_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return report_failure(error.code(), error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return report_failure(ErrorCode::io, error.what());
  } catch (const std::bad_alloc&) {
    return report_failure(ErrorCode::io, "out of memory");
  } catch (const std::exception& error) {
    const std::string what = error.what();  // torch's go on with a stack trace
    return report_failure(ErrorCode::internal, what.substr(0, what.find('\n')));
  }
}

// CLI11 would answer a misspelt command with "a subcommand is required".
void check_command_name(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const auto& command : kCommands) names.emplace_back(command.name);
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return;
  const auto near = nearest(argv[1], names);
  fail(ErrorCode::usage, "unknown command ", argv[1], near.empty() ? "" : "; did you mean " + near + "?",
       " (trireme --help lists them)");
}

int run(int argc, char** argv) {
  set_up_torch_log();
  check_command_name(argc, argv);
  CLI::App app("Trireme trains models on several machines joined by an ordinary network.", "trireme");
  app.set_version_flag("--version", "trireme " TRIREME_VERSION);
  app.require_subcommand(1);
  app.footer(kExample);
  std::function<int()> chosen;
  for (const auto& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    sub->final_callback([&chosen, action = command.setup(*sub)] { chosen = action; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    const auto subs = app.get_subcommands();
    fail(ErrorCode::usage, error.what(), "; see trireme ", subs.empty() ? "" : subs.front()->get_name() + " ",
         "--help");
  }
  return chosen();
}

}  // namespace
}  // namespace trireme::app

int main(int argc, char** argv) {
  try {
    return trireme::app::run(argc, argv);
  } catch (...) {
    return trireme::app::report_exception();
  }
}
