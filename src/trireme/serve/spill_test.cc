#include "trireme/serve/spill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::serve {
namespace {

using ::testing::HasSubstr;

SpillOptions resolve(const std::string& url, std::map<std::string, std::string> variables = {}) {
  return resolve_spill(url, "m", [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

constexpr const char* kLambda = "https://lambda.eu-west-1.amazonaws.com/2015-03-31/functions/f/invocations";

TEST(SpillUrl, TellsServersFromFunctions) {
  EXPECT_EQ(resolve("http://other:8000/").kind, SpillKind::http);
  EXPECT_EQ(resolve("http://other:8000/").url, "http://other:8000");
  const auto lambda = resolve(kLambda, {{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "key"}});
  EXPECT_EQ(lambda.kind, SpillKind::lambda);
  EXPECT_EQ(lambda.region, "eu-west-1");
  EXPECT_EQ(lambda.access_key, "id");
}

TEST(SpillUrl, NamesWhatIsMissing) {
  const auto refuse = [](const std::string& url, std::map<std::string, std::string> variables,
                         const std::string& part) {
    try {
      resolve(url, std::move(variables));
      ADD_FAILURE() << url;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(part));
    }
  };
  refuse("other:8000", {}, "must begin with http://");
  refuse(kLambda, {}, "AWS_ACCESS_KEY_ID");
  refuse("http://localhost/functions/f/invocations",
         {{"AWS_ACCESS_KEY_ID", "a"}, {"AWS_SECRET_ACCESS_KEY", "b"}}, "AWS_REGION");
}

TEST(SpillLambda, EventsAreHttpRequestsAndRepliesTheirAnswers) {
  const auto event = nlohmann::json::parse(lambda_event("m", "{\"inputs\":[]}"));
  EXPECT_EQ(event["path"], "/v2/models/m/infer");
  EXPECT_EQ(event["httpMethod"], "POST");
  EXPECT_EQ(event["body"], "{\"inputs\":[]}");
  EXPECT_EQ(lambda_reply(R"({"statusCode":200,"body":"{}"})"), "{}");
  for (const char* reply : {"", "{}", "[]", R"({"statusCode":500,"body":"x"})",
                            R"({"errorMessage":"out of memory"})", R"({"statusCode":200})"})
    EXPECT_THROW(lambda_reply(reply), RequestError) << reply;
}

}  // namespace
}  // namespace trireme::serve
