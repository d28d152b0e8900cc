#include "trireme/spec/json_guard.h"

#include "trireme/base/error.h"

namespace trireme::spec {

void check_json_depth(std::string_view text) {
  constexpr int kMaxDepth = 200;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) fail(ErrorCode::input, "nested more than ", kMaxDepth, " deep");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace trireme::spec
