#include "trireme/base/error.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace trireme {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return "usage";
    case ErrorCode::input:
      return "input";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::io:
      return "io";
    case ErrorCode::peer_lost:
      return "peer_lost";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::diverged:
      return "diverged";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

int exit_code(ErrorCode code) {
  return code == ErrorCode::usage || code == ErrorCode::input || code == ErrorCode::unsupported ? 2 : 1;
}

void check_failed(const char* expression, const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "trireme: bug: %s:%d: %s is false%s%s; please report it\n", file, line, expression,
               what.empty() ? "" : ": ", what.c_str());
  std::abort();
}

namespace {
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}
}  // namespace

std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = wrong.size() / 2 + 1;
  for (const auto& c : candidates) {
    const size_t d = edit_distance(wrong, c);
    if (d < best_distance) {
      best_distance = d;
      best = c;
    }
  }
  return best;
}

}  // namespace trireme
