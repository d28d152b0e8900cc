#include "trireme/serve/inflate.h"

#include <zlib.h>

#include <memory>

#include "trireme/base/error.h"
#include "trireme/serve/values.h"

namespace trireme::serve {

std::string inflate_body(std::string_view body, std::string_view encoding, size_t limit) {
  if (encoding != "gzip" && encoding != "deflate")
    throw RequestError(Reason::unsupported,
                       cat("content encoding '", encoding, "' is not taken: gzip or deflate"));
  constexpr int kGzipOrZlib = 15 + 32;
  z_stream stream{};
  TRIREME_CHECK(inflateInit2(&stream, kGzipOrZlib) == Z_OK);
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uInt>(body.size());
  std::string out;
  char block[65536];
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    stream.next_out = reinterpret_cast<Bytef*>(block);
    stream.avail_out = sizeof block;
    state = ::inflate(&stream, Z_NO_FLUSH);
    const size_t made = sizeof block - stream.avail_out;
    if ((state != Z_OK && state != Z_STREAM_END) || (state == Z_OK && made == 0))
      throw RequestError(Reason::invalid, cat("the ", encoding, " body is broken"));
    if (out.size() + made > limit)
      throw RequestError(Reason::too_large, cat("the body inflates to more than ", limit, " bytes"));
    out.append(block, made);
  }
  if (stream.avail_in > 0)
    throw RequestError(Reason::invalid, cat("bytes follow the end of the ", encoding, " body"));
  return out;
}

}  // namespace trireme::serve
