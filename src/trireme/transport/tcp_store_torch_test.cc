#include "trireme/transport/tcp_store_torch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "trireme/base/error.h"

namespace trireme::transport {
namespace {

// A port of this machine that listens (so that nobody else gets it) as long as the object lives.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(fd_); }
  int port() const { return port_; }

 private:
  int fd_, port_ = 0;
};

int free_port() {
  return Listener().port();
}

TEST(TcpStore, CarriesBytesBetweenClients) {
  const int port = free_port();
  const auto server = make_tcp_store("127.0.0.1", port, true, 2, Seconds{20});
  const auto client = make_tcp_store("127.0.0.1", port, false, 2, Seconds{20});
  std::string binary;
  for (int i = 0; i < 256; ++i) binary.push_back(static_cast<char>(i));
  std::thread other([&] { client->set("key", binary); });
  EXPECT_EQ(server->get("key", Seconds{20}).value(), binary);
  other.join();
  EXPECT_EQ(server->add("n", 2), 2);
  EXPECT_EQ(client->add("n", 3), 5);
  const auto failure = client->get("missing", Seconds{0.05}).failure();
  EXPECT_EQ(failure.code, ErrorCode::timeout);
  EXPECT_NE(failure.message.find("'missing'"), std::string::npos) << failure.message;
  EXPECT_EQ(client->get("key", Seconds{20}).value(), binary);  // a timeout does not break the store
}

TEST(TcpStore, PrefixesKeepAttemptsApart) {
  const int port = free_port();
  const auto first = make_tcp_store("127.0.0.1", port, true, 2, Seconds{20}, "0/");
  const auto second = make_tcp_store("127.0.0.1", port, false, 2, Seconds{20}, "1/");
  first->set("key", "old");
  EXPECT_EQ(first->add("n", 1), 1);
  EXPECT_FALSE(second->get("key", Seconds{0.05}).ok());
  EXPECT_EQ(second->add("n", 1), 1);
}

TEST(TcpStore, NamesAPortThatIsTaken) {
  const Listener other;
  try {
    make_tcp_store("127.0.0.1", other.port(), true, 1, Seconds{5});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io) << e.what();
    EXPECT_NE(std::string(e.what()).find(cat("port ", other.port(), " is taken")), std::string::npos)
        << e.what();
  }
}

TEST(TcpStore, NamesAPlaceWhereNobodyAnswers) {
  const int port = free_port();
  try {
    make_tcp_store("127.0.0.1", port, false, 2, Seconds{0.5});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::timeout) << e.what();
    EXPECT_NE(std::string(e.what()).find(cat("127.0.0.1:", port)), std::string::npos) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
  }
}

TEST(TcpStore, SaysWhenTheServerHasGone) {
  const int port = free_port();
  auto server = make_tcp_store("127.0.0.1", port, true, 2, Seconds{20});
  const auto client = make_tcp_store("127.0.0.1", port, false, 2, Seconds{20});
  client->set("a", "b");
  server.reset();
  try {
    client->add("n", 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::peer_lost) << e.what();
  }
}

TEST(TcpStore, RefusesAnImpossiblePort) {
  EXPECT_THROW(make_tcp_store("127.0.0.1", 70000, true, 1, Seconds{1}), Error);
}

}  // namespace
}  // namespace trireme::transport
