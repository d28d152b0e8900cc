#include "trireme/serve/values.h"

namespace trireme::serve {

std::string_view name(Reason reason) {
  switch (reason) {
    case Reason::invalid:
      return "invalid";
    case Reason::not_found:
      return "not found";
    case Reason::wrong_verb:
      return "wrong verb";
    case Reason::too_large:
      return "too large";
    case Reason::overloaded:
      return "overloaded";
    case Reason::expired:
      return "expired";
    case Reason::cancelled:
      return "cancelled";
    case Reason::unavailable:
      return "unavailable";
    case Reason::unsupported:
      return "unsupported";
    case Reason::failed:
      return "failed";
  }
  return "";
}

}  // namespace trireme::serve
