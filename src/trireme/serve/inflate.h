#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::serve {

// A body sent with Content-Encoding gzip or deflate. RequestError: invalid when it is broken, too_large when
// it inflates to more than `limit` bytes, unsupported for other encodings.
std::string inflate_body(std::string_view body, std::string_view encoding, size_t limit);

}  // namespace trireme::serve
