#include "trireme/train/data_parallel/agreement.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <sstream>

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

// The first rank whose value is not rank 0's; -1: none.
int first_stranger(comm::Group& group, uint64_t value) {
  const auto all = gather(group, value);
  const auto other = std::find_if(all.begin(), all.end(), [&](uint64_t v) { return v != all.front(); });
  return other == all.end() ? -1 : static_cast<int>(other - all.begin());
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

void agree_on_text(comm::Group& group, const std::string& what, const std::string& text,
                   const std::string& mend) {
  const int stranger = first_stranger(group, hash_text(text));
  if (stranger < 0) return;
  const std::string reference = broadcast_text(group, text, 0), other = broadcast_text(group, text, stranger);
  fail(ErrorCode::usage, "rank ", stranger, " has another ", what, " than rank 0 (",
       first_difference(other, reference), "); ", mend);
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

void agree(comm::Group& group, const RunFacts& facts) {
  agree_on_text(group, "version", facts.version, "install the same version everywhere");
  agree_on_text(group, "config", facts.config, "give all ranks the same CONFIG.toml and --set");
  const int stranger = first_stranger(group, facts.graph_fingerprint);
  if (stranger >= 0) {
    fail(ErrorCode::usage, "rank ", stranger,
         " has another model.graph than rank 0 (the files' content differs); give all ranks the same .pt2 "
         "file");
  }
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
