// Collectives over a real wire, one process a rank: the program of tests/multi/test_transport.py and of
// measurements.
//   comm_run --rank 0 --size 2 --port 29700 --mode check
// Prints one JSON object when all went well, one line on standard error otherwise.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "trireme/base/rng.h"
#include "trireme/comm/group.h"
#include "trireme/comm/reference.h"
#include "trireme/transport/tcp_store_torch.h"

namespace trireme::comm {
namespace {

struct Arguments {
  int rank = 0, size = 1, port = 29700, repeat = 20, parts = 1;
  int64_t elements = 10'000'000;
  double seconds = 2;
  std::string host = "127.0.0.1", mode = "check", codec = "none", strategy = "ring", rate;
  transport::TransportOptions transport;

  AllReduceOptions all_reduce() const {
    return {.strategy = strategy == "ring" ? Strategy::ring : Strategy::two_phase,
            .codec = codec == "bf16" ? codec::built_in_codecs().make("bf16") : codec::make_none(),
            .mean = true,
            .parts = parts};
  }
};

double seconds_of(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

double wall_seconds() {
  return static_cast<double>(steady_clock().now().count()) * 1e-9;
}

tensor::TensorView view_of(std::vector<float>& v) {
  return {v.data(), static_cast<int64_t>(v.size()), spec::Dtype::f32, {}};
}

std::vector<float> values(int64_t elements, int rank, int turn) {
  PhiloxStream rng(static_cast<uint64_t>(turn), static_cast<uint64_t>(rank));
  std::vector<float> v(static_cast<size_t>(elements));
  for (auto& x : v) x = static_cast<float>(rng.next_double() * 2 - 1);
  return v;
}

// All-reduce against the reference, and equal bits on all ranks.
void check_all_reduce(Group& group, const Arguments& a, int64_t elements, int turn) {
  std::vector<std::vector<float>> inputs;
  for (int r = 0; r < group.size(); ++r) inputs.push_back(values(elements, r, turn));
  auto mine = inputs[static_cast<size_t>(group.rank())];
  group.all_reduce(view_of(mine), a.all_reduce());
  const auto expected = reference_sum(inputs);
  const double unit = a.codec == "none" ? 0x1p-23 : 0x1.01p-8;
  for (size_t i = 0; i < mine.size(); ++i) {
    const double error = std::fabs(mine[i] * double(group.size()) - expected.sum[i]);
    if (error > unit * 1.01 * group.size() * expected.magnitude[i]) {
      fail(ErrorCode::diverged, "element ", i, " of ", elements, " is off by ", error);
    }
  }
  std::vector<float> all(mine.size() * static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (int r = 0; r < group.size(); ++r) {
    if (!mine.empty() &&
        std::memcmp(all.data() + mine.size() * static_cast<size_t>(r), mine.data(), mine.size() * 4) != 0) {
      fail(ErrorCode::diverged, "rank ", r, " holds other bits than rank ", group.rank());
    }
  }
}

void check(Group& group, const Arguments& a) {
  int turn = 0;
  for (const int64_t n :
       {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1000}, int64_t{262145}, int64_t{3'000'001}}) {
    check_all_reduce(group, a, n, turn++);
  }
  std::vector<std::byte> data(5'000'001, group.rank() == 0 ? std::byte{7} : std::byte{0});
  group.broadcast(data, 0);
  if (data.back() != std::byte{7}) fail(ErrorCode::diverged, "broadcast");
  group.barrier();
  std::printf("{\"rank\": %d, \"ok\": true}\n", group.rank());
}

void bench(Group& group, const Arguments& a) {
  auto data = values(a.elements, group.rank(), 0);
  const auto operation = group.prepare_all_reduce("tensor", view_of(data), a.all_reduce());
  std::vector<double> times;
  double cpu = 0;
  for (int i = 0; i < a.repeat + 2; ++i) {
    group.barrier();
    const double begin = wall_seconds(), cpu_begin = cpu_seconds();
    operation->start(static_cast<uint32_t>(i), 0);
    operation->wait();
    if (i >= 2) {  // two to warm up
      times.push_back(wall_seconds() - begin);
      cpu += cpu_seconds() - cpu_begin;
    }
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double sent = 4.0 * double(a.elements) * 2 * (group.size() - 1) / group.size();
  std::printf(
      "{\"rank\": %d, \"median_s\": %.6f, \"min_s\": %.6f, \"max_s\": %.6f, \"float32_mbit_per_s\": %.0f, "
      "\"cpu_s\": %.6f}\n",
      group.rank(), median, times.front(), times.back(), sent * 8e-6 / median, cpu / double(times.size()));
}

// Nothing to do for a while: the processor seconds used meanwhile.
void idle(Group& group, const Arguments& a) {
  group.barrier();
  const double begin = cpu_seconds();
  if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::duration<double>(a.seconds));
  group.barrier();  // the others wait here
  std::printf("{\"rank\": %d, \"cpu_s\": %.6f}\n", group.rank(), cpu_seconds() - begin);
}

// Until something ends it: what a peer's death looks like.
void loop(Group& group, const Arguments& a) {
  auto data = values(a.elements, group.rank(), 0);
  for (uint64_t i = 0;; ++i) {
    group.all_reduce(view_of(data), a.all_reduce());
    if (i == 0) {
      std::puts("running");
      std::fflush(stdout);
    }
  }
}

// Rank 0 sends the others a last message and ends; they read it late and end later still.
void leave(Group& group, const Arguments& a) {
  std::vector<std::byte> last(100'000, std::byte{42});
  if (group.rank() == 0) {
    for (int r = 1; r < group.size(); ++r) group.send(r, last);
  } else {
    std::this_thread::sleep_for(std::chrono::duration<double>(a.seconds));
    std::vector<std::byte> into(last.size());
    group.receive(0, into);
    if (into != last) fail(ErrorCode::diverged, "the last message");
    std::this_thread::sleep_for(std::chrono::duration<double>(a.seconds));
  }
  std::printf("{\"rank\": %d, \"ok\": true}\n", group.rank());
}

void run(const Arguments& a) {
  const auto store = transport::make_tcp_store(a.host, a.port, a.rank == 0, a.size, a.transport.timeout);
  const auto wire = transport::make_transport(a.rank, a.size, *store, a.transport);
  const auto queue = make_cpu_queue();
  Engine engine(*wire, *queue, {.timeout = a.transport.timeout});
  Group group(engine);
  if (a.mode == "check") check(group, a);
  if (a.mode == "bench") bench(group, a);
  if (a.mode == "idle") idle(group, a);
  if (a.mode == "loop") loop(group, a);
  if (a.mode == "leave") leave(group, a);
}

int main_of(int argc, char** argv) {
  Arguments a;
  CLI::App app("collectives over a real wire");
  app.add_option("--rank", a.rank);
  app.add_option("--size", a.size);
  app.add_option("--host", a.host);
  app.add_option("--port", a.port);
  app.add_option("--mode", a.mode)->check(CLI::IsMember({"check", "bench", "idle", "loop", "leave"}));
  app.add_option("--codec", a.codec)->check(CLI::IsMember({"none", "bf16"}));
  app.add_option("--strategy", a.strategy)->check(CLI::IsMember({"ring", "two_phase"}));
  app.add_option("--elements", a.elements);
  app.add_option("--repeat", a.repeat);
  app.add_option("--parts", a.parts);
  app.add_option("--seconds", a.seconds);
  app.add_option("--kind", a.transport.kind)->check(CLI::IsMember({"tcp", "ucx"}));
  app.add_option("--connections", a.transport.connections);
  app.add_option("--secret-file", a.transport.secret_file);
  app.add_option("--interface", a.transport.interface_name);
  app.add_option("--rate", a.rate);
  app.add_option("--timeout", a.transport.timeout.value);
  CLI11_PARSE(app, argc, argv);
  try {
    if (!a.rate.empty()) a.transport.rate_limit = parse_rate(a.rate);
    run(a);
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "comm_run: %s\n", e.what());
    return exit_code(e.code());
  }
}

}  // namespace
}  // namespace trireme::comm

int main(int argc, char** argv) {
  return trireme::comm::main_of(argc, argv);
}
