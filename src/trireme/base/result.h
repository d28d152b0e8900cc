#pragma once
// Result<T>: a value, or an outcome the caller will branch on (timeout, peer lost, infeasible, overloaded).
#include <string>
#include <utility>
#include <variant>

#include "trireme/base/error.h"

namespace trireme {

struct Failure {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}            // NOLINT(google-explicit-constructor)
  Result(Failure failure) : state_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Failure& failure() const {
    TRIREME_CHECK(!ok());
    return std::get<1>(state_);
  }
  // The value; throws the failure as Error when there is none.
  T& value() {
    if (!ok()) throw Error(failure().code, failure().message);
    return std::get<0>(state_);
  }
  T take() { return std::move(value()); }

 private:
  std::variant<T, Failure> state_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status ok_status() {
  return Unit{};
}

}  // namespace trireme
