// Ranks as threads, joined by real connections of this machine.
#include "trireme/transport/conformance_for_tests.h"

namespace trireme::transport {
namespace {

TestMaker ucx(std::string name, TransportOptions options) {
  options.timeout = Seconds{20};
  return {std::move(name), [options](int size) {
            const auto store = make_memory_store();
            return TestWorld{.make = [=](int r) { return make_ucx(r, size, *store, options); }};
          }};
}

TransportOptions on(std::string interface_name) {
  TransportOptions options;
  options.interface_name = std::move(interface_name);
  return options;
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance, ::testing::Values(ucx("tcp", on("lo")), ucx("any", {})),
                         [](const auto& info) { return info.param.name; });

std::string failure_of(const TransportOptions& options, ErrorCode code) {
  const auto store = make_memory_store();
  try {
    make_ucx(0, 2, *store, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Ucx, NamesInterfacesThatExist) {
  const std::string text = failure_of(on("nosuch0"), ErrorCode::input);
  EXPECT_NE(text.find("transport.interface = \"nosuch0\""), std::string::npos) << text;
  EXPECT_NE(text.find("lo"), std::string::npos) << text;
}

TEST(Ucx, NamesTheRankThatDidNotJoin) {
  TransportOptions options = on("lo");
  options.timeout = Seconds{0.05};
  const std::string text = failure_of(options, ErrorCode::timeout);
  EXPECT_NE(text.find("rank 1 did not join within 50.0 ms"), std::string::npos) << text;
}

TEST(Ucx, RefusesOptionsItCannotHonour) {
  TransportOptions options;
  options.connections = 4;
  EXPECT_NE(failure_of(options, ErrorCode::unsupported).find("transport.connections"), std::string::npos);
  options = {};
  options.secret_file = "secret";
  EXPECT_NE(failure_of(options, ErrorCode::unsupported).find("transport.secret_file"), std::string::npos);
}

}  // namespace
}  // namespace trireme::transport
