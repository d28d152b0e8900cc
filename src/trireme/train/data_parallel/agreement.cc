#include "trireme/train/data_parallel/agreement.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <sstream>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme::train {
namespace {

template <typename T>
std::vector<T> gather_values(comm::Group& group, T value) {
  std::vector<T> all(static_cast<size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

std::string first_difference(const std::string& theirs, const std::string& ours) {
  std::istringstream a(theirs), b(ours);
  std::string x, y;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(a, x)), more_b = static_cast<bool>(std::getline(b, y));
    if (!more_a) x = "nothing";
    if (!more_b) y = "nothing";
    if (x != y || (!more_a && !more_b)) return cat("'", x, "' there, '", y, "' on rank 0");
  }
}

// How `other`, the facts of `rank`, differ from rank 0's; empty: they do not.
std::string difference(const RunFacts& own, const RunFacts& other, int rank) {
  const auto differs = [&](const char* what, const std::string& theirs, const std::string& ours,
                           const char* mend) {
    return cat("rank ", rank, " has another ", what, " than rank 0 (", first_difference(theirs, ours), "); ",
               mend);
  };
  if (other.version != own.version)
    return differs("version", other.version, own.version, "install the same version everywhere");
  if (other.config != own.config)
    return differs("config", other.config, own.config, "give all ranks the same CONFIG.toml and --set");
  if (other.graph_fingerprint != own.graph_fingerprint) {
    return cat("rank ", rank,
               " has another model.graph than rank 0 (the files' content differs); give all ranks the same "
               ".pt2 file");
  }
  // Of other sizes, the ranks' orders of samples would differ, and samples be repeated or left out.
  if (other.samples == own.samples && other.evaluation_samples == own.evaluation_samples) return {};
  return cat("rank ", rank, " has ", other.samples, " training and ", other.evaluation_samples,
             " evaluation samples, rank 0 ", own.samples, " and ", own.evaluation_samples,
             "; give all ranks the same data files");
}

// The version, the numbers, then the config.
std::string to_text(const RunFacts& facts) {
  return cat(facts.version, "\n", facts.graph_fingerprint, " ", facts.samples, " ", facts.evaluation_samples,
             "\n", facts.config);
}

RunFacts read_facts(const std::string& text) {
  RunFacts facts;
  std::istringstream in(text);
  std::getline(in, facts.version);
  in >> facts.graph_fingerprint >> facts.samples >> facts.evaluation_samples;
  in.ignore();
  facts.config.assign(std::istreambuf_iterator<char>(in), {});
  return facts;
}

// Rank 0's verdict: nothing, or why the run cannot begin.
std::optional<Failure> compare_all(transport::Store& store, int world, const RunFacts& facts,
                                   Seconds timeout) {
  const Deadline deadline = Deadline::after(steady_clock(), timeout.value);
  for (int r = 1; r < world; ++r) {
    const double left = static_cast<double>((deadline.at - steady_clock().now()).count()) * 1e-9;
    auto text = store.get(cat("facts/", r), Seconds{std::max(0.001, left)});
    if (!text.ok()) {
      const Failure& why = text.failure();
      if (why.code != ErrorCode::timeout) return why;
      return Failure{why.code,
                     cat("rank ", r, " did not join within ", for_people(timeout), " (transport.timeout)")};
    }
    if (const auto why = difference(facts, read_facts(text.value()), r); !why.empty())
      return Failure{ErrorCode::usage, why};
  }
  return {};
}

// Ranks that come after a bad verdict hear it too, instead of finding nobody.
void wait_for_hearers(transport::Store& store, int world) {
  constexpr double kStragglersSeconds = 5;
  const Deadline deadline = Deadline::after(steady_clock(), kStragglersSeconds);
  for (int r = 1; r < world; ++r) {
    const double left = static_cast<double>((deadline.at - steady_clock().now()).count()) * 1e-9;
    if (left <= 0 || !store.get(cat("heard/", r), Seconds{left}).ok()) return;
  }
}

}  // namespace

std::vector<uint64_t> gather(comm::Group& group, uint64_t value) {
  return gather_values(group, value);
}
std::vector<double> gather(comm::Group& group, double value) {
  return gather_values(group, value);
}

std::string broadcast_text(comm::Group& group, std::string text, int root) {
  uint64_t size = text.size();
  group.broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  text.resize(size);
  if (size > 0) group.broadcast(std::as_writable_bytes(std::span(text)), root);
  return text;
}

void agree(transport::Store& store, int rank, int world, const RunFacts& facts, Seconds timeout) {
  constexpr const char* kVerdict = "verdict";
  if (rank == 0) {
    const auto why = compare_all(store, world, facts, timeout);
    store.set(kVerdict, why ? cat(static_cast<int>(why->code), " ", why->message) : "");
    if (!why) return;
    if (why->code == ErrorCode::usage) wait_for_hearers(store, world);
    throw Error(why->code, why->message);
  }
  store.set(cat("facts/", rank), to_text(facts));
  // Rank 0 waits for the slowest rank, so this takes longer than its wait.
  const std::string verdict = store.get(kVerdict, Seconds{2 * timeout.value}).take();
  if (verdict.empty()) return;
  store.set(cat("heard/", rank), "");
  const size_t space = verdict.find(' ');
  throw Error(static_cast<ErrorCode>(std::stoi(verdict.substr(0, space))), verdict.substr(space + 1));
}

void run_together(comm::Group& group, Seconds timeout, const std::function<void()>& work) {
  if (group.size() == 1) return work();
  auto running = std::async(std::launch::async, work);
  const std::chrono::duration<double> interval(timeout.value / 4);
  for (bool all_done = false; !all_done;) {
    const bool mine = running.wait_for(interval) == std::future_status::ready;
    const auto done = gather(group, uint64_t{mine ? 1U : 0U});
    all_done = std::find(done.begin(), done.end(), 0U) == done.end();
  }
  running.get();
}

}  // namespace trireme::train
