#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "doctor.h"
#include "trireme/base/error.h"

namespace trireme::app {
namespace {

struct Arguments {
  bool json = false;
  std::string folder = ".";
  std::vector<std::string> peers;
  std::string timeout = "5s";
};

Seconds timeout_of(const Arguments& arguments) {
  try {
    const auto timeout = parse_seconds(arguments.timeout);
    if (timeout.value > 0 && timeout.value <= 3600) return timeout;
  } catch (const Error& error) {
    fail(ErrorCode::usage, "--timeout: ", error.what());
  }
  fail(ErrorCode::usage, "--timeout ", arguments.timeout, ": must be above 0 and at most 1h");
}

std::vector<Finding> examine(const Arguments& arguments) {
  const auto timeout = timeout_of(arguments);
  // A wrong call is told at once, not after the other checks.
  std::vector<Finding> peers;
  for (const auto& peer : arguments.peers) peers.push_back(check_peer(peer, timeout));
  auto findings = check_machine();
  const auto add = [&](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  add(check_torch());
  add(check_transports());
  add(check_network());
  add({check_folder(arguments.folder)});
  add(std::move(peers));
  return findings;
}

void print_text(const std::vector<Finding>& findings) {
  for (const auto& f : findings)
    std::printf("%-4s %-26s %s\n", f.ok ? "ok" : "FAIL", f.check.c_str(), f.detail.c_str());
}

void print_json(const std::vector<Finding>& findings, bool ok) {
  auto checks = nlohmann::json::array();
  for (const auto& f : findings) checks.push_back({{"check", f.check}, {"ok", f.ok}, {"detail", f.detail}});
  std::printf("%s\n", nlohmann::json{{"ok", ok}, {"checks", checks}}.dump(2).c_str());
}

}  // namespace

std::function<int()> setup_doctor(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  app.add_flag("--json", arguments->json, "print one JSON document");
  app.add_option("--folder", arguments->folder, "where runs will be written")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--peer", arguments->peers, "test a TCP connection to host:port; may be repeated")
      ->type_name("HOST:PORT")
      ->expected(1)
      ->take_all();
  app.add_option("--timeout", arguments->timeout, "longest wait for a peer")
      ->type_name("TIME")
      ->capture_default_str();
  app.footer("Exit code 1 when a check fails.\nExample:\n  trireme doctor --peer 127.0.0.1:22 --json");
  return [arguments] {
    const auto findings = examine(*arguments);
    const bool ok = std::all_of(findings.begin(), findings.end(), [](auto& f) { return f.ok; });
    if (arguments->json) {
      print_json(findings, ok);
    } else {
      print_text(findings);
    }
    return ok ? 0 : 1;
  };
}

}  // namespace trireme::app
