#include "trireme/serve/http_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <future>
#include <nlohmann/json.hpp>

#include "trireme/serve/fake_backend_for_tests.h"
#include "trireme/serve/inflate.h"

namespace trireme::serve {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;

ModelOptions model(const std::string& name, const std::string& version) {
  ModelOptions o;
  o.name = name;
  o.version = version;
  o.path = "none";
  return o;
}

class Api : public ::testing::Test {
 protected:
  Api() { models_->load_all(); }

  HttpAnswer call(const std::string& verb, const std::string& target, const std::string& body = "",
                  std::optional<std::string> content_type = {}, std::optional<std::string> json_bytes = {}) {
    HttpCall c{verb,
               target,
               std::move(content_type),
               encoding_,
               std::move(json_bytes),
               std::make_shared<const std::string>(body),
               steady_clock().now()};
    auto promise = std::make_shared<std::promise<HttpAnswer>>();
    auto future = promise->get_future();
    api_.handle(std::move(c), [promise](HttpApi::Answer answer) { promise->set_value(answer()); });
    EXPECT_EQ(future.wait_for(30s), std::future_status::ready);
    return future.get();
  }
  static json parsed(const HttpAnswer& answer) { return json::parse(answer.body); }

  std::shared_ptr<FakeState> state_ = std::make_shared<FakeState>();
  int loads_ = 0;
  bool broken_ = false;
  std::optional<std::string> encoding_;
  std::shared_ptr<Repository> models_ = std::make_shared<Repository>(
      std::vector{model("double", "2"), model("double", "10"), model("other", "1")},
      [this](const ModelOptions& o) {
        ++loads_;
        if (broken_) fail(ErrorCode::input, "the file is gone");
        Instances instances;
        instances.push_back(std::make_unique<FakeBackend>(state_, o.name, o.version));
        return instances;
      });
  Service service_{models_, "1.0"};
  HttpApi api_{
      service_, {1 << 20, true}, [](const std::function<void()>& task) { task(); }, [] { return 3; }};
};

constexpr const char* kBody = R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]})";

TEST_F(Api, HealthAndMetadata) {
  EXPECT_EQ(call("GET", "/v2/health/live").status, 200);
  EXPECT_EQ(call("GET", "/v2/health/ready").status, 200);
  EXPECT_EQ(parsed(call("GET", "/v2"))["name"], "trireme");
  EXPECT_THAT(parsed(call("GET", "/v2/"))["extensions"], ::testing::Contains("binary_tensor_data"));
  const auto m = parsed(call("GET", "/v2/models/double"));
  EXPECT_EQ(m["versions"], (std::vector<std::string>{"2", "10"}));
  EXPECT_EQ(m["inputs"][0]["shape"], (std::vector<int>{-1, -1}));
  EXPECT_EQ(m["platform"], "fake");
  EXPECT_EQ(parsed(call("GET", "/v2/models"))["models"], (std::vector<std::string>{"double", "other"}));
  EXPECT_EQ(call("GET", "/v2/models/double/ready").status, 200);
  EXPECT_EQ(call("GET", "/v2/models/double/versions/2/ready").status, 200);
  EXPECT_EQ(call("HEAD", "/v2/health/live").status, 200);
}

TEST_F(Api, TheNewestVersionAnswersUnlessOneIsNamed) {
  EXPECT_EQ(parsed(call("POST", "/v2/models/double/infer", kBody))["model_version"], "10");
  EXPECT_EQ(parsed(call("POST", "/v2/models/double/versions/2/infer", kBody))["model_version"], "2");
  EXPECT_EQ(call("POST", "/v2/models/double/versions/3/infer", kBody).status, 404);
}

TEST_F(Api, InferAnswersInJsonAndBinary) {
  const auto plain = call("POST", "/v2/models/double/infer", kBody, "application/json; charset=utf-8");
  EXPECT_EQ(plain.status, 200);
  EXPECT_EQ(parsed(plain)["outputs"][0]["data"], (std::vector<float>{2, 4}));
  const float x[] = {3, 4};
  const std::string head =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}],)"
      R"("parameters":{"binary_data_output":true}})";
  const auto raw =
      call("POST", "/v2/models/double/infer", head + std::string(reinterpret_cast<const char*>(x), sizeof x),
           "application/octet-stream", std::to_string(head.size()));
  ASSERT_EQ(raw.status, 200) << raw.body;
  ASSERT_TRUE(raw.json_bytes);
  EXPECT_EQ(raw.body.size(), *raw.json_bytes + 8);
}

TEST_F(Api, ErrorsAreJsonWithAReason) {
  struct Case {
    const char *verb, *target, *body;
    int status;
  };
  for (const auto& c :
       {Case{"GET", "/", "", 404}, Case{"GET", "/v1/models", "", 404},
        Case{"GET", "/v2/models/none", "", 404}, Case{"GET", "/v2/models/none/ready", "", 404},
        Case{"POST", "/v2/models/none/infer", kBody, 404}, Case{"POST", "/v2", "", 405},
        Case{"GET", "/v2/models/double/infer", "", 405}, Case{"DELETE", "/v2/models/double", "", 405},
        Case{"POST", "/v2/models/double/infer", "", 400}, Case{"POST", "/v2/models/double/infer", "{}", 400},
        Case{"POST", "/v2/models/double/infer/more", kBody, 404}}) {
    const auto answer = call(c.verb, c.target, c.body);
    EXPECT_EQ(answer.status, c.status) << c.verb << c.target;
    EXPECT_FALSE(parsed(answer)["error"].get<std::string>().empty());
    EXPECT_FALSE(answer.reason.empty());
  }
  EXPECT_EQ(call("POST", "/v2/models/double/infer", kBody, "text/plain").status, 400);
  EXPECT_EQ(call("POST", "/v2/models/double/infer", kBody, {}, "9999").status, 400);
  EXPECT_EQ(call("GET", "/v2/models/double/infer").allow, "POST");
}

TEST_F(Api, NamesInPathsMayBeEscaped) {
  EXPECT_EQ(call("GET", "/v2/models/%64ouble?x=1").status, 200);
  EXPECT_EQ(call("GET", "/v2/models/%zz").status, 404);
}

TEST_F(Api, GzipBodiesAreInflatedWithinTheLimit) {
  const auto zip = [](const std::string& text) {
    uLongf size = compressBound(text.size());
    std::string out(size, '\0');
    compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
             text.size());
    out.resize(size);
    return out;
  };
  encoding_ = "deflate";
  EXPECT_EQ(call("POST", "/v2/models/double/infer", zip(kBody)).status, 200);
  EXPECT_EQ(call("POST", "/v2/models/double/infer", zip(std::string(2 << 20, ' '))).status, 413);
  EXPECT_EQ(call("POST", "/v2/models/double/infer", zip(kBody).substr(0, 20)).status, 400);
  encoding_ = "br";
  EXPECT_EQ(call("POST", "/v2/models/double/infer", kBody).status, 501);
}

TEST_F(Api, LoadReplacesAndUnloadTakesAway) {
  EXPECT_EQ(call("POST", "/v2/repository/models/double/load").status, 200);
  EXPECT_EQ(loads_, 5);
  EXPECT_EQ(call("POST", "/v2/repository/models/double/unload").status, 200);
  EXPECT_EQ(call("POST", "/v2/models/double/infer", kBody).status, 503);
  EXPECT_EQ(call("GET", "/v2/models/double/ready").status, 503);
  EXPECT_EQ(call("GET", "/v2/health/ready").status, 200);  // unloaded on purpose
  EXPECT_EQ(parsed(call("POST", "/v2/repository/index"))[0]["state"], "UNAVAILABLE");
  EXPECT_EQ(call("POST", "/v2/repository/models/double/load").status, 200);
  EXPECT_EQ(call("POST", "/v2/models/double/infer", kBody).status, 200);
  EXPECT_EQ(call("POST", "/v2/repository/models/none/load").status, 404);
}

TEST_F(Api, AFailedLoadLeavesTheOldModelServing) {
  broken_ = true;
  const auto answer = call("POST", "/v2/repository/models/double/load");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("the file is gone"));
  EXPECT_EQ(call("POST", "/v2/models/double/infer", kBody).status, 200);
}

TEST_F(Api, WhileDrainingReadinessIsOffAndRequestsAreServed) {
  service_.start_drain();
  EXPECT_EQ(call("GET", "/v2/health/ready").status, 503);
  EXPECT_EQ(call("GET", "/v2/health/live").status, 200);
  EXPECT_EQ(call("POST", "/v2/models/double/infer", kBody).status, 200);
}

TEST_F(Api, MetricsAreServed) {
  call("POST", "/v2/models/double/infer", kBody);
  const auto answer = call("GET", "/metrics");
  EXPECT_THAT(answer.content_type, HasSubstr("text/plain"));
  EXPECT_THAT(answer.body, HasSubstr("nv_inference_request_success{model=\"double\",version=\"10\"} 1\n"));
  EXPECT_THAT(answer.body, HasSubstr("trireme_connections 3\n"));
}

}  // namespace
}  // namespace trireme::serve
