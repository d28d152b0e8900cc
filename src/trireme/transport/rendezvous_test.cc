#include "trireme/transport/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/transport/rendezvous_wire.h"
#include "trireme/transport/sockets.h"

namespace trireme::transport {
namespace {
using testing::HasSubstr;
using Kind = RendezvousMessage::Kind;

constexpr Seconds kLong{30};
const std::string kSecretText = "a secret of 24 characters";

RendezvousOptions of_rank(int rank, int world, const std::string& secret = "") {
  return {.rank = rank, .world = world, .job = "job", .secret = secret, .timeout = kLong, .silence = kLong};
}

std::shared_ptr<Rendezvous> open(const RendezvousOptions& options) {
  return open_rendezvous({"127.0.0.1", 0}, options);
}

std::shared_ptr<Rendezvous> join(int port, const RendezvousOptions& options) {
  return join_rendezvous([port] { return Place{"127.0.0.1", port}; }, options);
}

std::string refusal(int port, const RendezvousOptions& options, ErrorCode code = ErrorCode::usage) {
  try {
    join(port, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "joined";
}

// The loss that `rendezvous` reports.
Loss loss_of(Rendezvous& rendezvous) {
  auto promise = std::make_shared<std::promise<Loss>>();
  auto future = promise->get_future();
  const auto watch = rendezvous.watch([promise](const Loss& loss) { promise->set_value(loss); });
  if (future.wait_for(std::chrono::seconds(30)) != std::future_status::ready) return {-1, {}};
  return future.get();
}

// A connection without our protocol's manners.
class Raw {
 public:
  explicit Raw(int port) : socket_(connect_to("127.0.0.1", port, deadline(), problem_)) {
    EXPECT_TRUE(socket_) << problem_;
  }
  void send(std::string bytes) { EXPECT_EQ(write_some(socket_, bytes), Io::done); }
  void send(const RendezvousMessage& message) { send(channel.seal(message)); }
  RendezvousMessage receive() {
    for (;;) {
      if (auto message = channel.next()) return *message;
      std::string bytes;
      if (!wait_for(socket_.fd(), POLLIN, deadline()) || read_some(socket_, bytes) == Io::closed)
        return {Kind::bye, -1, "", "closed"};
      channel.feed(bytes);
    }
  }
  // True when the other side closes without a word.
  bool is_dropped() { return receive().number == -1; }
  RendezvousChannel channel{Side::client};

 private:
  static Deadline deadline() { return Deadline::after(steady_clock(), 30); }
  std::string problem_;
  Socket socket_;
};

RendezvousMessage hello(std::string_view mode) {
  return {Kind::hello, kRendezvousVersion, std::string(mode), std::string(kNonceBytes, 'n')};
}

class RendezvousSecretTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(OpenAndSecret, RendezvousSecretTest, testing::Values("", kSecretText));

TEST_P(RendezvousSecretTest, IsAStoreForAllRanks) {
  const auto zero = open(of_rank(0, 3, GetParam()));
  const auto one = join(zero->port(), of_rank(1, 3, GetParam())),
             two = join(zero->port(), of_rank(2, 3, GetParam()));
  std::string binary;
  for (int i = 0; i < 256; ++i) binary.push_back(static_cast<char>(i));
  std::thread late([&] { one->set("key", binary); });
  EXPECT_EQ(zero->get("key", kLong).value(), binary);
  EXPECT_EQ(two->get("key", kLong).value(), binary);
  late.join();
  zero->set("from zero", "0");
  EXPECT_EQ(two->get("from zero", kLong).value(), "0");
  EXPECT_EQ(zero->add("n", 2) + one->add("n", 3) + two->add("n", -5), 2 + 5 + 0);
  const auto failure = two->get("missing", Seconds{0.01}).failure();
  EXPECT_EQ(failure.code, ErrorCode::timeout);
  EXPECT_THAT(failure.message, HasSubstr("'missing'"));
  two->set("large", std::string(900'000, 'x'));
  EXPECT_EQ(one->get("large", kLong).value().size(), 900'000U);
}

TEST_P(RendezvousSecretTest, AProcessThatDiesIsNamedToAll) {
  const auto zero = open(of_rank(0, 3, GetParam()));
  const auto one = join(zero->port(), of_rank(1, 3, GetParam()));
  {
    Raw dying(zero->port());
    const std::string nonce(kNonceBytes, 'n');
    dying.send(hello(GetParam().empty() ? kOpenRendezvous : kSecretRendezvous));
    const auto challenge = dying.receive();
    if (!GetParam().empty())
      dying.channel.use_key(session_key(GetParam(), nonce, challenge.value.substr(0, kNonceBytes)));
    dying.send({Kind::join, 2, "job", "3"});
    EXPECT_EQ(dying.receive().kind, Kind::welcome);
  }
  for (const auto& rank : {zero, one}) {
    const Loss loss = loss_of(*rank);
    EXPECT_EQ(loss.rank, 2);
    EXPECT_EQ(loss.why.code, ErrorCode::peer_lost);
    EXPECT_THAT(loss.why.message, HasSubstr("rank 2's process has ended"));
    EXPECT_EQ(rank->get("what rank 2 would have set", kLong).failure().code, ErrorCode::peer_lost);
  }
}

TEST(Rendezvous, ARankThatFailsTellsWhy) {
  const auto zero = open(of_rank(0, 3));
  const auto one = join(zero->port(), of_rank(1, 3)), two = join(zero->port(), of_rank(2, 3));
  one->leave("disk full");
  for (const auto& rank : {zero, two})
    EXPECT_THAT(loss_of(*rank).why.message, HasSubstr("rank 1 has failed (disk full)"));
}

TEST(Rendezvous, RankZerosEndIsNoticed) {
  auto zero = open(of_rank(0, 2));
  const auto one = join(zero->port(), of_rank(1, 2));
  zero->leave("out of memory");
  zero.reset();
  EXPECT_THAT(loss_of(*one).why.message, HasSubstr("rank 0 has failed (out of memory)"));
}

TEST(Rendezvous, WhoHasFinishedIsNotMissed) {
  auto zero = open(of_rank(0, 3));
  auto one = join(zero->port(), of_rank(1, 3));
  const auto two = join(zero->port(), of_rank(2, 3));
  one.reset();
  zero->set("after", "one");  // served after the end of rank 1 was seen or before; both are fine
  EXPECT_EQ(two->get("after", kLong).value(), "one");
  zero.reset();
  bool lost = false;
  const auto watch = two->watch([&](const Loss&) { lost = true; });
  EXPECT_EQ(two->get("nothing more", Seconds{0.05}).ok(), false);
  EXPECT_FALSE(lost);
}

TEST(Rendezvous, ASilentRankIsLostAndALivingOneIsNot) {
  RendezvousOptions options = of_rank(0, 3);
  options.silence = Seconds{1};
  const auto zero = open(options);
  options.rank = 1;
  const auto one = join(zero->port(), options);
  Raw silent(zero->port());
  silent.send(hello(kOpenRendezvous));
  EXPECT_EQ(silent.receive().kind, Kind::challenge);
  silent.send({Kind::join, 2, "job", "3"});
  for (const auto& rank : {zero, one}) {
    const Loss loss = loss_of(*rank);
    EXPECT_EQ(loss.rank, 2);
    EXPECT_THAT(loss.why.message, HasSubstr("rank 2 has given no sign of life for 1"));
  }
}

TEST(Rendezvous, ASilentRankZeroIsLost) {
  const Socket listener = listen_on(0, true);
  std::thread zero([&] {
    wait_for(listener.fd(), POLLIN, Deadline::after(steady_clock(), 30));
    const Socket socket = accept_from(listener);
    RendezvousChannel channel(Side::server);
    std::string bytes;
    for (const auto& answer : {RendezvousMessage{Kind::challenge, 1, std::string(kOpenRendezvous), ""},
                               RendezvousMessage{Kind::welcome, 0, "", ""}}) {
      std::optional<RendezvousMessage> message;
      while (!(message = channel.next())) {
        wait_for(socket.fd(), POLLIN, Deadline::after(steady_clock(), 30));
        if (read_some(socket, bytes) == Io::done) channel.feed(std::exchange(bytes, {}));
      }
      RendezvousMessage reply = answer;
      if (reply.kind == Kind::challenge)
        reply.value =
            std::string(kNonceBytes, 'm') + server_proof("", message->value, std::string(kNonceBytes, 'm'));
      std::string out = channel.seal(reply);
      write_some(socket, out);
    }
    while (read_some(socket, bytes) != Io::closed)
      wait_for(socket.fd(), POLLIN, Deadline::after(steady_clock(), 1));
  });
  RendezvousOptions options = of_rank(1, 2);
  options.silence = Seconds{0.5};
  {
    const auto one = join(port_of(listener), options);
    const Loss loss = loss_of(*one);
    EXPECT_EQ(loss.rank, 0);
    EXPECT_THAT(loss.why.message, HasSubstr("rank 0 has given no sign of life"));
  }
  zero.join();
}

// --- who may join

TEST(Rendezvous, AnotherSecretIsRefusedByBothSides) {
  const auto zero = open(of_rank(0, 2, kSecretText));
  EXPECT_THAT(refusal(zero->port(), of_rank(1, 2, "another secret of the run")),
              HasSubstr("has another secret"));
  EXPECT_THAT(refusal(zero->port(), of_rank(1, 2)), HasSubstr("without transport.secret_file"));
  Raw liar(zero->port());
  liar.send(hello(kSecretRendezvous));
  const auto challenge = liar.receive();
  EXPECT_EQ(challenge.kind, Kind::challenge);
  liar.channel.use_key(session_key("a wrong secret of a liar", std::string(kNonceBytes, 'n'),
                                   challenge.value.substr(0, kNonceBytes)));
  liar.send({Kind::join, 1, "job", "2"});
  EXPECT_TRUE(liar.is_dropped());
  const auto one = join(zero->port(), of_rank(1, 2, kSecretText));
  one->set("unharmed", "yes");
  EXPECT_EQ(zero->get("unharmed", kLong).value(), "yes");
}

TEST(Rendezvous, ASecretThatRankZeroLacksIsRefused) {
  const auto zero = open(of_rank(0, 2));
  EXPECT_THAT(refusal(zero->port(), of_rank(1, 2, kSecretText)), HasSubstr("which rank 0 was not given"));
}

TEST(Rendezvous, StrangersAreRefusedAndDoNoHarm) {
  const auto zero = open(of_rank(0, 2));
  Raw web(zero->port());
  web.send(std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_TRUE(web.is_dropped());
  Raw skips(zero->port());
  skips.send({Kind::set, 0, "key", "value"});
  EXPECT_TRUE(skips.is_dropped());
  Raw half(zero->port());
  half.send(hello(kOpenRendezvous));
  EXPECT_EQ(half.receive().kind, Kind::challenge);
  const auto one = join(zero->port(), of_rank(1, 2));
  EXPECT_EQ(one->add("n", 1), 1);
}

TEST(Rendezvous, ManyIdleConnectionsDoNotKeepAnybodyOut) {
  const auto zero = open(of_rank(0, 2));
  std::vector<std::unique_ptr<Raw>> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(std::make_unique<Raw>(zero->port()));
  const auto one = join(zero->port(), of_rank(1, 2));
  EXPECT_EQ(one->add("n", 1), 1);
  EXPECT_TRUE(idle.front()->is_dropped()) << "the oldest make place";
}

TEST(Rendezvous, AWrongWorldEndsTheRunBeforeItBegins) {
  const auto zero = open(of_rank(0, 3));
  EXPECT_THAT(refusal(zero->port(), of_rank(1, 4)),
              HasSubstr("rank 1 belongs to a run of 4 ranks, rank 0 to one of 3"));
  const Loss loss = loss_of(*zero);
  EXPECT_EQ(loss.why.code, ErrorCode::usage);
  EXPECT_EQ(loss.rank, 1);
}

TEST(Rendezvous, OnceAllAreThereAWrongWorldHarmsNobody) {
  const auto zero = open(of_rank(0, 2));
  const auto one = join(zero->port(), of_rank(1, 2));
  EXPECT_THAT(refusal(zero->port(), of_rank(1, 4)), HasSubstr("4 ranks"));
  EXPECT_EQ(one->add("n", 1), 1);
}

TEST(Rendezvous, ARankJoinsOnce) {
  const auto zero = open(of_rank(0, 2));
  const auto one = join(zero->port(), of_rank(1, 2));
  EXPECT_THAT(refusal(zero->port(), of_rank(1, 2)), HasSubstr("two processes have the same rank"));
  EXPECT_THAT(refusal(zero->port(), of_rank(5, 2)), HasSubstr("not one of 2 ranks"));
  EXPECT_EQ(one->add("n", 1), 1);
}

TEST(Rendezvous, AnotherStartOfTheRunWaitsForItsOwn) {
  RendezvousOptions later = of_rank(1, 2);
  later.job = "job/1";
  later.timeout = Seconds{0.3};
  auto old = open(of_rank(0, 2));
  EXPECT_THAT(refusal(old->port(), later, ErrorCode::timeout), HasSubstr("another start of the run"));
}

// --- places

TEST(Rendezvous, NamesAPortThatIsTaken) {
  const auto zero = open(of_rank(0, 2));
  try {
    open_rendezvous({"127.0.0.1", zero->port()}, of_rank(0, 2));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_THAT(e.what(), HasSubstr(cat("port ", zero->port(), " is taken")));
  }
}

TEST(Rendezvous, NamesAPlaceWhereNobodyAnswers) {
  const int port = open(of_rank(0, 2))->port();
  RendezvousOptions options = of_rank(1, 2);
  options.timeout = Seconds{0.3};
  EXPECT_THAT(refusal(port, options, ErrorCode::timeout),
              HasSubstr(cat("nobody answered at 127.0.0.1:", port)));
}

TEST(Rendezvous, AsksAgainWhereRankZeroIs) {
  const int gone = open(of_rank(0, 2))->port();
  const auto zero = open(of_rank(0, 2));
  int asked = 0;
  const auto one = join_rendezvous(
      [&] {
        return Place{"127.0.0.1", asked++ == 0 ? gone : zero->port()};
      },
      of_rank(1, 2));
  EXPECT_EQ(one->add("n", 1), 1);
}

}  // namespace
}  // namespace trireme::transport
