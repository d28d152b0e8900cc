#include "trireme/serve/infer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace trireme::serve {
namespace {

using nlohmann::json;
using spec::Dtype;
using ::testing::HasSubstr;

std::shared_ptr<const std::string> shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

InferRequest parse(std::string body, std::optional<int64_t> json_bytes = {}) {
  return parse_infer_request(shared(std::move(body)), json_bytes);
}

template <typename T>
std::vector<T> values(const Tensor& tensor) {
  std::vector<T> all(tensor.bytes.size() / sizeof(T));
  std::memcpy(all.data(), tensor.bytes.data(), tensor.bytes.size());
  return all;
}

void expect_refused(const std::string& body, const std::string& part, std::optional<int64_t> json_bytes = {},
                    Reason reason = Reason::invalid) {
  try {
    parse(body, json_bytes);
    ADD_FAILURE() << "accepted: " << body;
  } catch (const RequestError& e) {
    EXPECT_EQ(e.reason(), reason) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(part)) << body;
  }
}

std::string input(const std::string& fields) {
  return R"({"inputs":[{"name":"x",)" + fields + "}]}";
}

TEST(InferJson, ReadsNestedAndFlatData) {
  for (const char* data : {"[[1,2,3],[4,5,6.5]]", "[1,2,3,4,5,6.5]", "[[[1],[2],[3]],[[4],[5],[6.5]]]"}) {
    const auto r = parse(input(std::string(R"("datatype":"FP32","shape":[2,3],"data":)") + data));
    ASSERT_EQ(r.inputs.size(), 1u);
    EXPECT_EQ(r.inputs[0].shape, (spec::Shape{2, 3}));
    EXPECT_EQ(values<float>(r.inputs[0]), (std::vector<float>{1, 2, 3, 4, 5, 6.5}));
  }
}

TEST(InferJson, ReadsEveryTypeToItsLimits) {
  const auto one = [](const char* type, const char* number) {
    return parse(input(std::string(R"("datatype":")") + type + R"(","shape":[1],"data":[)" + number + "]"))
        .inputs[0];
  };
  EXPECT_EQ(values<int8_t>(one("INT8", "-128"))[0], -128);
  EXPECT_EQ(values<uint8_t>(one("UINT8", "255"))[0], 255);
  EXPECT_EQ(values<int16_t>(one("INT16", "32767"))[0], 32767);
  EXPECT_EQ(values<uint16_t>(one("UINT16", "65535"))[0], 65535);
  EXPECT_EQ(values<int32_t>(one("INT32", "-2147483648"))[0], std::numeric_limits<int32_t>::min());
  EXPECT_EQ(values<uint32_t>(one("UINT32", "4294967295"))[0], 4294967295u);
  EXPECT_EQ(values<int64_t>(one("INT64", "-9223372036854775808"))[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(values<uint64_t>(one("UINT64", "18446744073709551615"))[0], std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(values<double>(one("FP64", "1e-300"))[0], 1e-300);
  EXPECT_EQ(values<uint8_t>(one("BOOL", "true"))[0], 1);
  EXPECT_EQ(values<uint8_t>(one("BOOL", "0"))[0], 0);
  for (const auto& [type, number] : std::vector<std::pair<const char*, const char*>>{{"INT8", "128"},
                                                                                     {"UINT8", "-1"},
                                                                                     {"UINT16", "65536"},
                                                                                     {"INT32", "2147483648"},
                                                                                     {"INT64", "1.5"},
                                                                                     {"FP32", "1e39"},
                                                                                     {"BOOL", "2"},
                                                                                     {"INT64", "true"},
                                                                                     {"FP32", "\"1\""},
                                                                                     {"FP32", "null"},
                                                                                     {"UINT8", "[256]"}})
    expect_refused(input(std::string(R"("datatype":")") + type + R"(","shape":[1],"data":[)" + number + "]"),
                   "'data'");
}

TEST(InferJson, ReadsBinaryTensorsInTheirOrderBesideJson) {
  std::string head =
      R"({"id":"42","parameters":{"binary_data_output":true,"priority":2,"timeout":5000},"inputs":[)"
      R"({"name":"a","datatype":"INT16","shape":[2],"parameters":{"binary_data_size":4}},)"
      R"({"name":"b","datatype":"INT32","shape":[1],"data":[7]},)"
      R"({"name":"c","datatype":"FP32","shape":[1,1],"parameters":{"binary_data_size":4}}],)"
      R"("outputs":[{"name":"o"},{"name":"p","parameters":{"binary_data":false}}]})";
  const int16_t a[] = {258, -2};
  const float c = 1.25f;
  std::string body = head;
  body.append(reinterpret_cast<const char*>(a), sizeof a).append(reinterpret_cast<const char*>(&c), sizeof c);
  const auto r = parse(body, static_cast<int64_t>(head.size()));
  EXPECT_EQ(r.id, "42");
  EXPECT_TRUE(r.binary_outputs);
  EXPECT_EQ(r.priority, 2);
  EXPECT_EQ(r.timeout_us, 5000);
  EXPECT_EQ(values<int16_t>(r.inputs[0]), (std::vector<int16_t>{258, -2}));
  EXPECT_EQ(values<int32_t>(r.inputs[1])[0], 7);
  EXPECT_EQ(values<float>(r.inputs[2])[0], 1.25f);
  EXPECT_EQ(r.outputs, (std::vector<RequestedOutput>{{"o", {}}, {"p", false}}));
  expect_refused(body + "x", "unexpected additional input data: 1 byte", static_cast<int64_t>(head.size()));
  expect_refused(body.substr(0, body.size() - 1), "past the end", static_cast<int64_t>(head.size()));
}

TEST(InferJson, RefusesWhatIsMissingOrOfTheWrongKind) {
  expect_refused("", "not JSON");
  expect_refused("{", "not JSON");
  expect_refused("[]", "must be a JSON object");
  expect_refused("{}", "'inputs' is missing");
  expect_refused(R"({"inputs":3})", "'inputs' must be an array");
  expect_refused(R"({"inputs":[3]})", "must hold objects");
  expect_refused(R"({"inputs":[{}]})", "'name' is missing");
  expect_refused(R"({"inputs":[],"id":7})", "'id' must be a string");
  expect_refused(R"({"inputs":[],"parameters":{"a":[1]}})", "parameter 'a'");
  expect_refused(R"({"inputs":[],"parameters":{"timeout":-1}})", "'timeout'");
  expect_refused(R"({"inputs":[],"outputs":[{"name":1}]})", "'name' must be a string");
  expect_refused(input(R"("shape":[1],"data":[1])"), "'datatype' is missing");
  expect_refused(input(R"("datatype":"FLOAT","shape":[1],"data":[1])"), "datatype 'FLOAT'");
  expect_refused(input(R"("datatype":"BYTES","shape":[1],"data":["a"])"), "datatype 'BYTES'");
  expect_refused(input(R"("datatype":"FP32","data":[1])"), "'shape' is missing");
  expect_refused(input(R"("datatype":"FP32","shape":[1.5],"data":[1])"), "'shape'");
  expect_refused(input(R"("datatype":"FP32","shape":[1])"), "'data' is missing");
  expect_refused(input(R"("datatype":"FP32","shape":[1],"data":1)"), "'data' must be an array");
  expect_refused(input(R"("datatype":"FP32","shape":[2],"data":[1])"),
                 "holds 1 values, but shape [2] takes 2");
  expect_refused(input(R"("datatype":"FP16","shape":[1],"data":[1])"), "no JSON form");
  expect_refused(input(R"("datatype":"FP32","shape":[1],"data":[1],"parameters":{"binary_data_size":4})"),
                 "give one");
  expect_refused(input(R"("datatype":"FP32","shape":[1],"parameters":{"binary_data_size":3})"),
                 "takes 4 bytes");
  expect_refused(input(R"("datatype":"FP32","shape":[1],"parameters":{"shared_memory_region":"r"})"),
                 "shared memory", {}, Reason::unsupported);
}

TEST(InferJson, RefusesShapesWithoutAllocatingThem) {
  expect_refused(input(R"("datatype":"FP32","shape":[-1],"data":[1])"), "0 or more");
  expect_refused(input(R"("datatype":"FP64","shape":[4611686018427387904,4],"data":[1])"), "too large");
  expect_refused(input(R"("datatype":"FP64","shape":[1152921504606846975],"data":[1])"), "holds 1 values");
  expect_refused(input(R"("datatype":"FP32","shape":[99999999999999999999],"data":[1])"), "not JSON");
}

TEST(InferJson, RefusesDeepNesting) {
  std::string body =
      input(R"("datatype":"FP32","shape":[1],"data":)" + std::string(5000, '[') + std::string(5000, ']'));
  expect_refused(body, "nests more than 100 deep");
}

TEST(InferJson, HeaderLengthIsAWholeNumberWithinTheBody) {
  EXPECT_EQ(parse_header_length("12", 12), 12);
  for (const char* text : {"", "x", "-1", "13", "99999999999", "1.0", " 1"})
    EXPECT_THROW(parse_header_length(text, 12), RequestError) << text;
}

TEST(InferJson, RawBodiesFillTheOneInput) {
  ModelInfo model;
  model.inputs = {{"x", Dtype::f32, {-1, 3}, {1, 3}}};
  model.joinable = true;
  const auto r = raw_infer_request(model, shared(std::string(12, '\0')));
  EXPECT_EQ(r.inputs[0].shape, (spec::Shape{1, 3}));
  EXPECT_TRUE(r.binary_outputs);
  EXPECT_THROW(raw_infer_request(model, shared(std::string(13, '\0'))), RequestError);
  model.inputs[0].shape = {1, -1};
  EXPECT_EQ(raw_infer_request(model, shared(std::string(20, '\0'))).inputs[0].shape, (spec::Shape{1, 5}));
  model.inputs.push_back({"y", Dtype::f32, {1}, {1}});
  EXPECT_THROW(raw_infer_request(model, shared(std::string(12, '\0'))), RequestError);
}

Tensor tensor(const std::string& name, Dtype dtype, spec::Shape shape, const void* data, size_t bytes) {
  return {name, dtype, std::move(shape), {static_cast<const std::byte*>(data), bytes}, nullptr};
}

TEST(InferJson, WritesResponsesThatReadBackBitForBit) {
  const float x[] = {0.1f, -3.4028235e38f};
  const int64_t y[] = {std::numeric_limits<int64_t>::min()};
  const InferResponse response{
      "m\"\n",
      "1",
      "id",
      {tensor("x", Dtype::f32, {2}, x, sizeof x), tensor("y", Dtype::i64, {1}, y, sizeof y)}};
  const auto body = render_infer_response(response, {}, false);
  EXPECT_FALSE(body.json_bytes);
  const auto read = json::parse(body.text);
  EXPECT_EQ(read["model_name"], "m\"\n");
  EXPECT_EQ(read["id"], "id");
  EXPECT_EQ(read["outputs"][0]["datatype"], "FP32");
  EXPECT_EQ(read["outputs"][0]["data"][0].get<float>(), x[0]);
  EXPECT_EQ(read["outputs"][0]["data"][1].get<float>(), x[1]);
  EXPECT_EQ(read["outputs"][1]["data"][0].get<int64_t>(), y[0]);
  const auto mixed = render_infer_response(response, {{"x", {}}, {"y", false}}, true);
  ASSERT_TRUE(mixed.json_bytes);
  const auto head = json::parse(mixed.text.substr(0, *mixed.json_bytes));
  EXPECT_EQ(head["outputs"][0]["parameters"]["binary_data_size"], 8);
  EXPECT_EQ(mixed.text.substr(*mixed.json_bytes), std::string(reinterpret_cast<const char*>(x), sizeof x));
}

TEST(InferJson, NaNIsRefusedInJsonAndCarriedInBinary) {
  const float x[] = {std::numeric_limits<float>::quiet_NaN()};
  const InferResponse response{"m", "1", "", {tensor("x", Dtype::f32, {1}, x, sizeof x)}};
  EXPECT_THROW(render_infer_response(response, {}, false), RequestError);
  EXPECT_TRUE(render_infer_response(response, {}, true).json_bytes);
}

TEST(InferJson, RequestsReadBackAsTheyWereWritten) {
  const float x[] = {1, 2};
  InferRequest request;
  request.id = "7";
  request.inputs = {tensor("x", Dtype::f32, {1, 2}, x, sizeof x)};
  request.outputs = {{"y", {}}};
  for (const bool binary : {false, true}) {
    auto body = render_infer_request(request, binary);
    std::optional<int64_t> head;
    if (body.json_bytes) head = static_cast<int64_t>(*body.json_bytes);
    const auto back = parse(body.text, head);
    EXPECT_EQ(back.id, "7");
    EXPECT_EQ(values<float>(back.inputs[0]), (std::vector<float>{1, 2}));
    EXPECT_EQ(back.outputs, (std::vector<RequestedOutput>{{"y", binary}}));
  }
}

}  // namespace
}  // namespace trireme::serve
