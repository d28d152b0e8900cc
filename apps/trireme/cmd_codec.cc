#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "codec_bench.h"
#include "commands.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/rng.h"
#include "trireme/codec/codec.h"
#include "trireme/codec/linear.h"

namespace trireme::app {
namespace {

using nlohmann::json;

struct Arguments {
  bool json = false;
  std::string codec;
  std::vector<std::string> options;
  std::string shape, in, wire, out;
  uint64_t seed = 0;
  int64_t steps = 1;
};

// --- list

json value_of(const Option& option) {
  return std::visit(
      [](const auto* field) -> json {
        using Field = std::decay_t<decltype(*field)>;
        if constexpr (std::is_same_v<Field, bool> || std::is_same_v<Field, int64_t> ||
                      std::is_same_v<Field, double> || std::is_same_v<Field, std::string>)
          return *field;
        else
          return nullptr;  // no codec has such an option
      },
      option.target);
}

json description(const codec::CodecKind& kind) {
  OptionList list;
  const auto finish = kind.open(list);
  json options = json::object();
  for (const Option& o : list.options()) options[o.key] = value_of(o);
  const codec::Traits t = finish()->traits();
  return {{"name", kind.name},
          {"help", kind.help},
          {"status", kind.experimental ? "experimental" : "supported"},
          {"options", options},
          {"stateful", t.stateful},
          {"unbiased", t.unbiased},
          {"contractive", t.contractive},
          {"payload", codec::name(t.payload)},
          {"rounds", t.rounds},
          {"bits_per_element", t.bits_per_element}};
}

int run_list(const Arguments& a) {
  const codec::CodecSet codecs = codec::built_in_codecs();
  json all = json::array();
  for (const auto& [name, kind] : codecs.all()) all.push_back(description(kind));
  if (a.json) {
    std::printf("%s\n", all.dump().c_str());
    return 0;
  }
  std::printf("%-9s %9s  %-11s  %s\n", "codec", "bits/elem", "payload", "what it sends; options");
  for (const json& c : all) {
    std::printf("%-9s %9.3g  %-11s  %s\n", c["name"].get<std::string>().c_str(),
                c["bits_per_element"].get<double>(), c["payload"].get<std::string>().c_str(),
                c["help"].get<std::string>().c_str());
    if (!c["options"].empty()) std::printf("%33s%s\n", "", c["options"].dump().c_str());
  }
  return 0;
}

// --- roundtrip

OptionTable table_of(const std::vector<std::string>& assignments) {
  OptionTable table;
  OptionList list;
  list.add("option", table, "");
  for (const auto& text : assignments) {
    if (text.find('=') == std::string::npos) fail(ErrorCode::usage, "--option ", text, ": write key=value");
    list.set("option." + text);
  }
  return table;
}

std::vector<float> read_floats(const std::string& path) {
  const std::string bytes = read_file(path);
  if (bytes.size() % sizeof(float) != 0)
    fail(ErrorCode::input, path, ": ", bytes.size(), " bytes are not a whole number of float32 values");
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <typename T>
void write_values(const std::string& path, const std::vector<T>& values) {
  write_file(path, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

codec::Shape shape_of(const Arguments& a, size_t elements) {
  if (a.shape.empty()) return {"", static_cast<int64_t>(elements), 1};
  long rows = 0, columns = 0;
  char rest = 0;
  if (std::sscanf(a.shape.c_str(), "%ldx%ld%c", &rows, &columns, &rest) != 2 || rows < 1 || columns < 1)
    fail(ErrorCode::usage, "--shape ", a.shape, ": write ROWSxCOLUMNS, as in 64x32");
  if (elements % static_cast<size_t>(rows) != 0 ||
      elements / static_cast<size_t>(rows) != static_cast<size_t>(columns))
    fail(ErrorCode::usage, "--shape ", a.shape, ": ", a.in, " has ", elements, " elements");
  return {"", rows, columns};
}

codec::Call call_of(uint64_t seed, int64_t step, const codec::Shape& shape) {
  codec::Call call;
  call.seed = mix(seed, static_cast<uint64_t>(step), 1);
  call.shared_seed = mix(seed, static_cast<uint64_t>(step), 2);
  call.step = static_cast<uint64_t>(step);
  call.rows = shape.rows;
  call.columns = shape.columns;
  return call;
}

// One rank's steps with the same gradient; a codec with its state.
class Repeater {
 public:
  Repeater(codec::CodecPtr codec, codec::Shape shape)
      : codec_(std::move(codec)), shape_(std::move(shape)), rounds_(codec_->rounds({shape_})) {
    if (rounds_ != nullptr) return;
    for (size_t i = 0; i < codec_->state_names().size(); ++i)
      memory_.emplace_back(static_cast<size_t>(shape_.elements()));
    for (auto& m : memory_) state_.emplace_back(m);
  }

  void step(const std::vector<float>& in, uint64_t seed, int64_t step, std::vector<std::byte>& wire,
            std::vector<float>& out) {
    const codec::Call call = call_of(seed, step, shape_);
    if (rounds_ != nullptr) {
      const auto numbers = codec::run_alone(*rounds_, in, call);
      const std::vector<std::span<const float>> views(numbers.begin(), numbers.end());
      rounds_->decode(views, out, call);
      rounds_->finish(views, call);
      wire = codec::pack(codec_->name(), shape_, numbers, call);
      return;
    }
    wire.resize(codec_->wire_bound(in.size()));
    wire.resize(codec_->encode(in, wire, call, state_));
    codec_->decode(wire, out);
  }

 private:
  codec::CodecPtr codec_;
  codec::Shape shape_;
  std::unique_ptr<codec::Rounds> rounds_;
  std::vector<std::vector<float>> memory_;
  std::vector<std::span<float>> state_;
};

int run_roundtrip(const Arguments& a) {
  if (a.steps < 1) fail(ErrorCode::usage, "--steps ", a.steps, ": at least 1");
  const codec::CodecSet codecs = codec::built_in_codecs();
  const OptionTable options = table_of(a.options);
  codec::CodecPtr codec = codecs.make(a.codec, options, "--option");
  if (a.steps > 1) {
    codec::Choice choice =
        codec::choose(codecs, a.codec, options, codec::Feedback::automatic, "--option", "error feedback");
    log::info(choice.note);
    codec = choice.codec;
  }
  const std::vector<float> in = read_floats(a.in);
  const codec::Shape shape = shape_of(a, in.size());
  std::vector<std::byte> wire;
  std::vector<float> out(in.size());
  std::vector<double> sum(in.size());
  try {
    Repeater repeater(codec, shape);
    for (int64_t step = 1; step <= a.steps; ++step) {
      repeater.step(in, a.seed, step, wire, out);
      for (size_t i = 0; i < out.size(); ++i) sum[i] += out[i];
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::diverged) throw;
    fail(ErrorCode::input, a.in, ": ", e.what());
  }
  if (a.steps > 1) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(sum[i] / static_cast<double>(a.steps));
  }
  if (!a.wire.empty()) write_values(a.wire, wire);
  write_values(a.out, out);
  if (!a.json) return 0;
  double error = 0, whole = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    error += (double{out[i]} - in[i]) * (double{out[i]} - in[i]);
    whole += double{in[i]} * in[i];
  }
  const json answer{
      {"codec", a.codec},
      {"elements", in.size()},
      {"wire_bytes", wire.size()},
      {"bits_per_element",
       in.empty() ? 0 : 8.0 * static_cast<double>(wire.size()) / static_cast<double>(in.size())},
      {"relative_error", whole > 0 ? std::sqrt(error / whole) : 0}};
  std::printf("%s\n", answer.dump().c_str());
  return 0;
}

}  // namespace

std::function<int()> setup_codec(CLI::App& app) {
  auto a = std::make_shared<Arguments>();
  auto chosen = std::make_shared<std::function<int(const Arguments&)>>();
  app.require_subcommand(1);
  app.footer(
      "Example:\n  trireme codec list\n  trireme codec roundtrip --codec onebit --in g.f32 --out d.f32 "
      "--steps 20");

  CLI::App* list =
      app.add_subcommand("list", "the codecs, their options with defaults, and what they promise");
  list->add_flag("--json", a->json, "one JSON array");
  list->footer("Example:\n  trireme codec list --json");

  CLI::App* trip =
      app.add_subcommand("roundtrip", "encode and decode a file of little-endian float32 values");
  trip->add_option("--codec", a->codec, "name, as codec list prints it")->required()->type_name("NAME");
  trip->add_option("--option", a->options, "an option of the codec; may be given several times")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  trip->add_option("--shape", a->shape, "the values as a matrix (powersgd, acpsgd); else a vector")
      ->type_name("RxC");
  trip->add_option("--in", a->in, "values")->required()->type_name("FILE");
  trip->add_option("--wire", a->wire, "where the wire bytes (of the last step) go")->type_name("FILE");
  trip->add_option("--out", a->out, "where the decoded values go")->required()->type_name("FILE");
  trip->add_option("--seed", a->seed, "of random codecs")->capture_default_str();
  trip->add_option("--steps", a->steps,
                   "above 1: the same values that often, with error feedback as train would "
                   "wear it; --out is the mean")
      ->capture_default_str();
  trip->add_flag("--json", a->json, "print sizes and the relative error");
  trip->footer(
      "Example:\n  trireme codec roundtrip --codec int8 --option block=256 --in g.f32 --wire w.bin --out "
      "d.f32");

  auto bench_arguments = std::make_shared<CodecBenchArguments>();
  CLI::App* bench = app.add_subcommand("bench", "encode and decode rates beside memcpy, on one core");
  bench->add_option("--codec", bench_arguments->codec, "only this one")->type_name("NAME");
  bench->add_option("--size", bench_arguments->size, "of the gradients, as 64MiB")->capture_default_str();
  bench
      ->add_option("--in", bench_arguments->in,
                   "float32 values to take, repeated to the size; else drawn ones")
      ->type_name("FILE");
  bench->add_option("--rounds", bench_arguments->rounds, "alternating measurements; medians are printed")
      ->capture_default_str();
  bench->add_flag("--json", bench_arguments->json, "one JSON document");
  bench->footer("Example:\n  trireme codec bench --codec int8 --size 16MiB --json");

  bench->callback([chosen, bench_arguments] {
    *chosen = [bench_arguments](const Arguments&) { return run_codec_bench(*bench_arguments); };
  });
  list->callback([chosen] { *chosen = run_list; });
  trip->callback([chosen] { *chosen = run_roundtrip; });
  return [a, chosen] { return (*chosen)(*a); };
}

}  // namespace trireme::app
