#pragma once
// The three kinds of failure (ARCHITECTURE.md, Failures):
//   Error   the caller's mistake, or a failure that ends the operation; thrown, caught once in main.
//   CHECK   our own bug; prints and aborts.
//   Result  an outcome the caller branches on (base/result.h).
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class ErrorCode {
  usage,        // a wrong call: unknown key, impossible value
  input,        // a file or value that cannot be used: missing, broken, misshaped
  unsupported,  // understood, but this build or version cannot do it
  io,           // the system refused: disk full, permission, port taken
  peer_lost,    // a rank died or left
  timeout,      // a wait ended by its deadline
  diverged,     // NaN or Inf, or replicas that differ
  cancelled,    // stopped from outside
  internal,     // an invariant of a library below us failed
};

// "usage", "input", …: the bracketed tag in messages and logs.
std::string_view name(ErrorCode code);

// 2 for a wrong call or wrong input (usage, input, unsupported), else 1.
int exit_code(ErrorCode code);

// One line: where, what, how to mend.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Joins anything that streams. Headers seen by torch files must not pull in fmt (see TorchWheel.cmake).
template <typename... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  static_cast<void>((out << ... << parts));  // no parts: nothing to stream
  return out.str();
}

template <typename... Parts>
[[noreturn]] void fail(ErrorCode code, const Parts&... parts) {
  throw Error(code, cat(parts...));
}

[[noreturn]] void check_failed(const char* expression, const char* file, int line, const std::string& what);

// The candidate nearest to `wrong` by edit distance, or "" when none is near; for "did you mean" hints.
std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates);

}  // namespace trireme

#define TRIREME_CHECK(condition, ...)                                                       \
  do {                                                                                      \
    if (!(condition)) [[unlikely]]                                                          \
      ::trireme::check_failed(#condition, __FILE__, __LINE__, ::trireme::cat(__VA_ARGS__)); \
  } while (false)
