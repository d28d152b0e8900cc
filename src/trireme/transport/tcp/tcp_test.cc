// Ranks as threads, joined by real connections of this machine.
#include "trireme/transport/conformance_for_tests.h"

namespace trireme::transport {
namespace {

TransportOptions options(int connections, std::string interface_name = "lo") {
  TransportOptions o;
  o.interface_name = std::move(interface_name);
  o.connections = connections;
  o.timeout = Seconds{20};
  return o;
}

TestMaker tcp(std::string name, const TransportOptions& options) {
  return {std::move(name), [options](int size) {
            const auto store = make_memory_store();
            return TestWorld{.make = [=](int r) { return make_tcp(r, size, *store, options); }};
          }};
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance,
                         ::testing::Values(tcp("one", options(1)), tcp("four", options(4)),
                                           tcp("any", options(2, "")), tcp("striped", options(1, "lo,lo"))),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::transport
