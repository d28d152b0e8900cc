// Damaged bodies: each is read or refused with RequestError; nothing else comes out. Run under the asan
// preset too.
#include <gtest/gtest.h>

#include "trireme/base/rng.h"
#include "trireme/serve/infer_json.h"
#include "trireme/serve/request_check.h"

namespace trireme::serve {
namespace {

const std::vector<std::string>& corpus() {
  static const std::vector<std::string> kBodies = {
      R"({"id":"1","inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2.5,-3,4e2]}],"outputs":[{"name":"y"}]})",
      R"({"inputs":[{"name":"x","datatype":"INT64","shape":[2,2],"data":[[1,2],[3,4]]}],"parameters":{"priority":1,"timeout":5}})",
      R"({"inputs":[{"name":"x","datatype":"BOOL","shape":[2],"data":[true,false]},{"name":"z","datatype":"UINT8","shape":[0],"data":[]}]})",
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}12345678)"};
  return kBodies;
}

std::string damaged(PhiloxStream& random) {
  const auto below = [&random](size_t n) { return n == 0 ? 0 : random.next_u64() % n; };
  static const std::vector<std::string> kPieces = {"-1",         "9223372036854775807",
                                                   "1e999",      "[",
                                                   "]",          "{",
                                                   "}",          "\"",
                                                   ",",          ":",
                                                   "null",       "\\ud800",
                                                   "FP64",       "BYTES",
                                                   "4294967296", std::string(1, '\0')};
  std::string body = corpus()[below(corpus().size())];
  for (size_t change = below(4) + 1; change > 0; --change) {
    const size_t at = below(body.size() + 1);
    switch (below(5)) {
      case 0:
        if (at < body.size()) body[at] = static_cast<char>(random.next_u32());
        break;
      case 1:
        body.erase(at, below(8));
        break;
      case 2:
        body.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 3:
        body.resize(at);
        break;
      default:
        body.insert(at, body.substr(at, below(20)));
    }
  }
  return body;
}

TEST(InferJsonFuzz, DamagedBodiesAreReadOrRefused) {
  ModelInfo model;
  model.inputs = {{"x", spec::Dtype::f32, {-1, -1}, {1, 1}}};
  model.outputs = {{"y", spec::Dtype::f32, {-1}, {}}};
  model.joinable = true;
  model.max_rows = 8;
  PhiloxStream random(11, 0);
  size_t read = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto body = std::make_shared<const std::string>(damaged(random));
    std::optional<int64_t> head;
    if (random.next_u32() % 2 == 0) head = static_cast<int64_t>(random.next_u64() % (body->size() + 1));
    try {
      InferRequest request = parse_infer_request(body, head);
      ++read;
      render_infer_request(request, random.next_u32() % 2 == 0);
      check_request(model, request);
    } catch (const RequestError&) {
    }
    try {
      parse_infer_response(body, head);
    } catch (const RequestError&) {
    }
  }
  EXPECT_GT(read, 1000u);  // the damage is not so heavy that nothing gets past the JSON parser
}

}  // namespace
}  // namespace trireme::serve
