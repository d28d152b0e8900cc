#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/train/run_files.h"

namespace trireme::app {

std::function<int()> setup_report(CLI::App& app) {
  struct Arguments {
    std::vector<std::string> runs;
    std::string out = "report.html";
  };
  auto arguments = std::make_shared<Arguments>();
  app.add_option("runs", arguments->runs, "run folders, written by trireme train")
      ->type_name("RUN")
      ->required();
  app.add_option("-o,--out", arguments->out, "page to write")->type_name("FILE")->capture_default_str();
  app.footer("Example:\n  trireme report runs/plain runs/bf16 -o report.html");
  return [arguments] {
    const auto page = train::report_html({arguments->runs.begin(), arguments->runs.end()});
    write_file(arguments->out, page);
    std::printf("%s\n", arguments->out.c_str());
    return 0;
  };
}

}  // namespace trireme::app
