// `trireme load`: open-loop load against a server of the Open Inference Protocol.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <charconv>
#include <cstdio>
#include <memory>

#include "commands.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/units.h"
#include "trireme/serve/load.h"

namespace trireme::app {
namespace {

struct Arguments {
  serve::LoadOptions load;
  double rate = 0, slo_ms = 0;
  std::string trace, payload, duration, timeout = "30s", gaps = "exponential", body = "binary";
  std::vector<std::string> shapes;
  bool json = false;
};

constexpr const char* kExample =
    "Example:\n"
    "  trireme load --url http://localhost:8000 --model mlp --rate 200 --duration 10s --slo-ms 50\n"
    "A trace is a CSV with columns minute,requests or second,requests, or TIMESTAMP with one arrival a "
    "line.\n"
    "Latency counts from when a request was due, so a server that falls behind is not flattered.";

// "tokens=1x64"
std::pair<std::string, std::vector<int64_t>> parse_shape(const std::string& text) {
  const auto refuse = [&] {
    fail(ErrorCode::usage, "--shape ", text, ": write INPUT=2x3, e.g. --shape tokens=1x64");
  };
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) refuse();
  std::vector<int64_t> shape;
  const char* at = text.data() + equals + 1;
  const char* const end = text.data() + text.size();
  while (true) {
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 0) refuse();
    shape.push_back(size);
    if (stop == end) return {text.substr(0, equals), shape};
    if (*stop != 'x') refuse();
    at = stop + 1;
  }
}

serve::LoadOptions options_of(const Arguments& a) {
  serve::LoadOptions o = a.load;
  if ((a.rate > 0) == !a.trace.empty()) fail(ErrorCode::usage, "load needs one of --rate and --trace");
  if (o.model.empty() == o.path.empty()) fail(ErrorCode::usage, "load needs one of --model and --path");
  if (!a.payload.empty()) o.payload = read_file(a.payload);
  if (!a.duration.empty()) o.duration_s = parse_seconds(a.duration).value;
  if (a.rate > 0 && o.duration_s <= 0)
    fail(ErrorCode::usage, "--rate needs a --duration above 0, e.g. --duration 10s");
  o.trace = a.rate > 0 ? serve::constant_rate(a.rate, o.duration_s) : serve::read_trace(a.trace);
  o.timeout_s = parse_seconds(a.timeout).value;
  if (o.timeout_s <= 0) fail(ErrorCode::usage, "--timeout ", a.timeout, ": must be above 0");
  o.slo_s = a.slo_ms / 1e3;
  o.gaps = a.gaps == "even" ? serve::Gaps::even : serve::Gaps::exponential;
  o.binary = a.body == "binary";
  for (const auto& text : a.shapes) o.shapes.insert(parse_shape(text));
  return o;
}

void print_for_people(const serve::LoadReport& r, double slo_s) {
  const auto ms = [&](double share) { return 1e3 * serve::quantile(r.ok_s, share); };
  std::printf("sent %lu in %.1f s: %lu ok, %lu rejected, %lu failed\n", r.sent, r.seconds, r.ok, r.rejected,
              r.failed);
  std::printf("latency of ok ones: p50 %.2f ms, p90 %.2f ms, p99 %.2f ms, max %.2f ms\n", ms(0.5), ms(0.9),
              ms(0.99), ms(1));
  if (slo_s > 0) {
    uint64_t late = 0;
    for (const double s : r.ok_s) late += s > slo_s ? 1 : 0;
    std::printf("of the ok ones %lu took longer than the SLO of %.0f ms\n", late, 1e3 * slo_s);
  }
  for (const auto& [what, count] : r.errors) std::printf("  %lu x %s\n", count, what.c_str());
}

int run(const Arguments& arguments) {
  const auto options = options_of(arguments);
  const auto report = serve::run_load(options);
  constexpr double kLate = 0.005;
  if (const double late = serve::quantile(report.late_s, 0.99); late > kLate)
    log::warning(cat("1 % of the requests were sent more than ", 1e3 * late,
                     " ms after they were due: this client or its --connections are the limit"));
  if (arguments.json)
    std::printf("%s\n", serve::to_json(report, options.slo_s).c_str());
  else
    print_for_people(report, options.slo_s);
  return 0;
}

}  // namespace

std::function<int()> setup_load(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  app.add_option("--url", a->load.url, "http://HOST:PORT")->required();
  app.add_option("--model", a->load.model);
  app.add_option("--model-version", a->load.version, "default: the newest");
  app.add_option("--rate", a->rate, "requests per second")->check(CLI::PositiveNumber);
  app.add_option("--trace", a->trace, "load over time instead of a rate")->type_name("FILE");
  app.add_option("--scale", a->load.scale, "multiplies the trace's rates")->check(CLI::PositiveNumber);
  app.add_option("--duration", a->duration, "e.g. 10s; of a trace, its beginning")->type_name("TIME");
  app.add_option("--gaps", a->gaps, "between requests")
      ->check(CLI::IsMember({"exponential", "even"}))
      ->capture_default_str();
  app.add_option("--slo-ms", a->slo_ms, "count answers that take longer")->check(CLI::NonNegativeNumber);
  app.add_option("--rows", a->load.rows, "first size of the inputs")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--shape", a->shapes, "of an input whose sizes are open; may be repeated")
      ->type_name("INPUT=AxB")
      ->expected(1)
      ->take_all();
  app.add_option("--body", a->body)->check(CLI::IsMember({"binary", "json"}))->capture_default_str();
  app.add_option("--path", a->load.path,
                 "for other protocols: POST --payload there instead of inferring --model");
  app.add_option("--payload", a->payload, "body for --path")->type_name("FILE");
  app.add_option("--connections", a->load.connections, "most at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--timeout", a->timeout, "of one request")->type_name("TIME")->capture_default_str();
  app.add_option("--seed", a->load.seed, "of gaps and values")->capture_default_str();
  app.add_flag("--json", a->json, "one JSON document (docs/reference/serving.md)");
  app.footer(kExample);
  return [a] { return run(*a); };
}

}  // namespace trireme::app
