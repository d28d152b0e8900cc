#include <gtest/gtest.h>

#include <thread>

#include "trireme/transport/transport.h"

namespace trireme::transport {
namespace {

TEST(MemoryStore, SetsGetsAndAdds) {
  const auto store = make_memory_store();
  const std::string binary("a\0b\xff", 4);
  store->set("key", binary);
  EXPECT_EQ(store->get("key", Seconds{1}).value(), binary);
  EXPECT_EQ(store->add("count", 2), 2);
  EXPECT_EQ(store->add("count", -3), -1);
  std::thread other([&] { store->set("late", "x"); });
  EXPECT_EQ(store->get("late", Seconds{30}).value(), "x");
  other.join();
}

TEST(MemoryStore, NamesAMissingKey) {
  const auto failure = make_memory_store()->get("nobody", Seconds{0.001}).failure();
  EXPECT_EQ(failure.code, ErrorCode::timeout);
  EXPECT_NE(failure.message.find("'nobody'"), std::string::npos) << failure.message;
}

TransportOptions of_kind(std::string kind) {
  TransportOptions options;
  options.kind = std::move(kind);
  return options;
}

TEST(MakeTransport, OneRankNeedsNoNetwork) {
  const auto store = make_memory_store();
  for (const char* kind : {"ucx", "loopback", "sim"})
    EXPECT_EQ(make_transport(0, 1, *store, of_kind(kind))->size(), 1);
}

TEST(MakeTransport, RefusesWhatCannotWork) {
  const auto store = make_memory_store();
  for (const char* kind : {"loopback", "sim"}) {
    try {
      make_transport(0, 2, *store, of_kind(kind));
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_NE(std::string(e.what()).find("transport.kind"), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(make_transport(2, 2, *store, of_kind("ucx")), Error);
}

}  // namespace
}  // namespace trireme::transport
