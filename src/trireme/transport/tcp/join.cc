#include "trireme/transport/tcp/join.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "trireme/transport/interfaces.h"
#include "trireme/transport/tcp/door.h"
#include "trireme/transport/tcp/handshake.h"
#include "trireme/transport/tcp/places.h"

namespace trireme::transport::tcp {
namespace {

using Nanoseconds = Clock::Nanoseconds;
constexpr Nanoseconds kConnectPatience = std::chrono::seconds(3), kAnswerPatience = std::chrono::seconds(10),
                      kPause = std::chrono::milliseconds(100);

// One connection that this rank calls: tries the peer's addresses in turn until one of them proves itself.
class Call {
 public:
  Call(int peer, int index, std::vector<Address> candidates)
      : peer_(peer), index_(index), candidates_(std::move(candidates)) {}

  int peer() const { return peer_; }
  int index() const { return index_; }
  const std::string& trouble() const { return trouble_; }
  bool established() const { return handshake_ && handshake_->proved() && unsent_.empty(); }
  // Every address was tried, and somebody there spoke our protocol without being that rank.
  bool hopeless() const { return refused_ && next_ == 0; }
  const Claim& claim() const { return handshake_->peer(); }
  Fd take_socket() { return std::move(socket_); }

  struct Party {  // who calls
    Claim claim;
    HandshakeKey key;
    uint32_t from_ip = 0;
    std::string interface_name;
  };
  void add_to(std::vector<pollfd>& polled) const {
    const bool sends = !handshake_ || !unsent_.empty();
    if (socket_) polled.push_back({socket_.get(), static_cast<short>(sends ? POLLOUT : POLLIN), 0});
  }
  Nanoseconds next_deadline() const { return until_; }

  void turn(const Party& party, short events) {
    const auto now = steady_clock().now();
    if (!socket_) {
      if (now >= until_) begin(party);
    } else if (!handshake_ && events != 0) {
      const std::string error = error_of(socket_);
      if (!error.empty()) return give_up(error, now);
      handshake_.emplace(Handshake::Role::caller, party.claim, party.key);
      unsent_ = handshake_->take_reply();
      until_ = now + kAnswerPatience;
      converse(now);
    } else if (handshake_ && events != 0) {
      converse(now);
    }
    if (socket_ && now >= until_) give_up("no answer", now);
  }

 private:
  void begin(const Party& party) {
    const auto now = steady_clock().now();
    auto socket = begin_connect(candidates_[next_], party.from_ip, party.interface_name);
    if (!socket) return give_up(socket.failure().message, now);
    socket_ = socket.take();
    until_ = now + kConnectPatience;
  }

  void give_up(const std::string& why, Nanoseconds now) {
    trouble_ = cat(to_text(candidates_[next_]), ": ", why);
    socket_.reset();
    handshake_.reset();
    heard_.clear();
    unsent_.clear();
    next_ = (next_ + 1) % candidates_.size();
    until_ = next_ == 0 ? now + kPause : now;
  }

  void refuse(const std::string& why, Nanoseconds now) {
    refused_ = true;
    give_up(why, now);
  }

  void converse(Nanoseconds now) {
    for (;;) {
      if (!unsent_.empty()) {
        auto sent = write_some(socket_, unsent_);
        if (!sent) return give_up(sent.failure().message, now);
        unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent.value()));
        if (!unsent_.empty()) return;
      }
      const size_t have = heard_.size(), wanted = handshake_->wanted();
      if (wanted == 0) return;
      heard_.resize(wanted);
      auto got = read_some(socket_, std::span(heard_).subspan(have));
      heard_.resize(have + (got ? got.value() : 0));
      if (!got) return give_up(got.failure().message, now);
      if (heard_.size() < wanted) return;
      if (Status status = handshake_->take(heard_); !status) return refuse(status.failure().message, now);
      if (handshake_->proved() && handshake_->peer().rank != static_cast<uint32_t>(peer_)) {
        return refuse(cat("it is rank ", handshake_->peer().rank), now);
      }
      heard_.clear();
      unsent_ = handshake_->take_reply();
    }
  }

  int peer_, index_;
  std::vector<Address> candidates_;
  size_t next_ = 0;
  Fd socket_;
  std::optional<Handshake> handshake_;  // once connected
  std::vector<std::byte> heard_, unsent_;
  Nanoseconds until_{};
  std::string trouble_;
  bool refused_ = false;
};

class Join {
 public:
  Join(Store& store, const JoinOptions& options);
  std::vector<std::vector<Fd>> run();

 private:
  std::string key(const std::string& what) const { return cat("trireme/tcp/", world_, "/", what); }
  Claim claim(int index) const;
  void listen();
  void publish();
  HandshakeKey meet();
  void plan_calls();
  bool complete() const { return missing_ == 0; }
  void turn();
  void wait(std::vector<pollfd>& polled) const;
  void admit(Door::Guest guest);
  void advance(Call& call, short events);
  void establish(int peer, int index, const Claim& theirs, Fd socket);
  std::string get(const std::string& what, int of_rank);
  double left() const { return static_cast<double>((deadline_ - steady_clock().now()).count()) * 1e-9; }
  [[noreturn]] void report_missing();

  Store& store_;
  const JoinOptions& options_;
  int total_;  // connections of a pair
  Nanoseconds deadline_;
  int64_t world_;
  std::vector<Interface> interfaces_, named_;
  std::vector<Fd> listeners_;
  std::optional<Door> door_;
  HandshakeKey handshake_key_;
  std::vector<Call> calls_;
  std::vector<std::vector<Fd>> connections_;
  int missing_ = 0;
};

Join::Join(Store& store, const JoinOptions& options)
    : store_(store),
      options_(options),
      total_(options.connections * static_cast<int>(std::max<size_t>(options.interfaces.size(), 1))),
      deadline_(Deadline::after(steady_clock(), options.timeout.value).at),
      // Counted per rank, so that a second world over the same store does not read the first one's addresses.
      world_(store.add(cat("trireme/tcp/worlds/", options.rank), 1)),
      interfaces_(list_interfaces()),
      connections_(static_cast<size_t>(options.size)),
      missing_((options.size - 1) * total_) {
  for (const auto& name : options_.interfaces) named_.push_back(find_interface(name));
  for (int r = 0; r < options_.size; ++r) {
    if (r != options_.rank) connections_[static_cast<size_t>(r)].resize(static_cast<size_t>(total_));
  }
}

Claim Join::claim(int index) const {
  return {Purpose::data,
          static_cast<uint32_t>(options_.rank),
          static_cast<uint32_t>(options_.size),
          static_cast<uint32_t>(index),
          static_cast<uint32_t>(total_),
          !options_.secret.empty()};
}

void Join::listen() {
  if (named_.empty()) {
    listeners_.push_back(listen_at({0, 0}));
  }
  for (const Interface& i : named_) listeners_.push_back(listen_at({i.ipv4.front().ip, 0}, i.name));
}

void Join::publish() {
  Places places{host_name(), named_.size(), {}};
  if (named_.empty()) {
    places.addresses = addresses_of(interfaces_, address_of(listeners_[0]).port);
  } else {
    for (const Fd& listener : listeners_) places.addresses.push_back(address_of(listener));
  }
  store_.set(key(cat(options_.rank)), to_text(places));
}

std::string Join::get(const std::string& what, int of_rank) {
  auto value = store_.get(key(what), Seconds{std::max(0.001, left())});
  if (!value) {
    fail(value.failure().code, "rank ", options_.rank, ": rank ", of_rank, " did not join within ",
         for_people(options_.timeout), " (transport.timeout): ", value.failure().message);
  }
  return value.take();
}

// Rank 0 draws a random number that only those who read the store know.
HandshakeKey Join::meet() {
  if (options_.rank == 0) {
    Digest random;
    fill_random(random);
    store_.set(key("world"), std::string(reinterpret_cast<const char*>(random.data()), random.size()));
  }
  const std::string world = get("world", 0);
  return {options_.secret.empty() ? world : options_.secret, world};
}

void Join::plan_calls() {
  const std::string host = host_name();
  for (int peer = 0; peer < options_.rank; ++peer) {
    const auto places = parse_places(get(cat(peer), peer));
    if (!places || places->addresses.empty()) {
      fail(ErrorCode::io, "rank ", options_.rank, ": no connection to rank ", peer,
           ": it published no address that can be read; run the same Trireme everywhere");
    }
    for (int index = 0; index < total_; ++index) {
      calls_.emplace_back(peer, index, candidates(*places, host, interfaces_, index));
    }
  }
}

void Join::establish(int peer, int index, const Claim& theirs, Fd socket) {
  if (theirs.connections != static_cast<uint32_t>(total_)) {
    fail(ErrorCode::input, "rank ", options_.rank, " has ", total_, " connections to a peer and rank ", peer,
         " has ", theirs.connections,
         ": set transport.connections alike on all ranks, and as many interfaces");
  }
  connections_[static_cast<size_t>(peer)][static_cast<size_t>(index)] = std::move(socket);
  --missing_;
}

void Join::wait(std::vector<pollfd>& polled) const {
  auto until = std::min(deadline_, door_->next_deadline());
  for (const Call& call : calls_) until = std::min(until, call.next_deadline());
  const auto wait = std::max(Nanoseconds{0}, until - steady_clock().now());
  const timespec limit{wait.count() / 1'000'000'000, wait.count() % 1'000'000'000};
  const int n = ppoll(polled.data(), polled.size(), &limit, nullptr);
  TRIREME_CHECK(n >= 0 || errno == EINTR, std::strerror(errno));
}

void Join::admit(Door::Guest guest) {
  const Claim& c = guest.claim;
  const bool impossible = c.size != static_cast<uint32_t>(options_.size) || c.rank >= c.size ||
                          static_cast<int>(c.rank) <= options_.rank || c.index >= c.connections;
  const bool known = !impossible && c.index < static_cast<uint32_t>(total_) && connections_[c.rank][c.index];
  if (impossible || known) {
    return door_->refuse(guest,
                         cat("it claims to be connection ", c.index, " of rank ", c.rank, " of ", c.size));
  }
  establish(static_cast<int>(c.rank), static_cast<int>(c.index), c, std::move(guest.socket));
}

void Join::advance(Call& call, short events) {
  Call::Party party{claim(call.index()), handshake_key_};
  if (!named_.empty()) {
    const Interface& own = named_[static_cast<size_t>(call.index()) % named_.size()];
    party.from_ip = own.ipv4.front().ip;
    party.interface_name = own.name;
  }
  call.turn(party, events);
  if (call.established()) establish(call.peer(), call.index(), call.claim(), call.take_socket());
  if (call.hopeless()) {
    fail(ErrorCode::input, "rank ", options_.rank, ": no connection to rank ", call.peer(), ": ",
         call.trouble());
  }
}

void Join::turn() {
  std::vector<pollfd> polled;
  for (const Fd& listener : listeners_) polled.push_back({listener.get(), POLLIN, 0});
  door_->add_to(polled);
  std::vector<size_t> place_of_call;
  for (const Call& call : calls_) {
    place_of_call.push_back(polled.size());
    call.add_to(polled);
  }
  place_of_call.push_back(polled.size());
  wait(polled);
  for (const Fd& listener : listeners_) {
    for (auto& guest : door_->turn(listener)) admit(std::move(guest));
  }
  for (size_t i = 0; i < calls_.size(); ++i) {
    const bool has = place_of_call[i] < place_of_call[i + 1];
    advance(calls_[i], has ? polled[place_of_call[i]].revents : short{0});
  }
  std::erase_if(calls_, [](const Call& call) { return call.established(); });
}

void Join::report_missing() {
  for (int r = 0; r < options_.size; ++r) {
    const auto& of_rank = connections_[static_cast<size_t>(r)];
    if (std::all_of(of_rank.begin(), of_rank.end(), [](const Fd& fd) { return bool(fd); })) continue;
    const auto limit = for_people(options_.timeout);
    const std::string refused = door_->refusals().summary();
    // Those below were found in the store before they were called.
    if (r > options_.rank && !store_.get(key(cat(r)), Seconds{0.001})) {
      fail(ErrorCode::timeout, "rank ", options_.rank, ": rank ", r, " did not join within ", limit,
           " (transport.timeout)", refused);
    }
    std::string why = cat("it did not call within ", limit);
    for (const Call& call : calls_) {
      if (call.peer() == r && !call.trouble().empty()) why = cat(call.trouble(), ", for ", limit);
    }
    fail(ErrorCode::timeout, "rank ", options_.rank, ": no connection to rank ", r, ": ", why,
         " (transport.timeout)", refused,
         "; do all ranks use a network (transport.interface) on which they reach each other?");
  }
  check_failed("a connection is missing", __FILE__, __LINE__, "");
}

std::vector<std::vector<Fd>> Join::run() {
  listen();
  publish();
  handshake_key_ = meet();
  door_.emplace(cat("rank ", options_.rank, "'s data port"), claim(0), handshake_key_);
  plan_calls();
  while (!complete()) {
    if (steady_clock().now() >= deadline_) report_missing();
    turn();
  }
  door_->close();
  return std::move(connections_);
}

}  // namespace

std::vector<std::vector<Fd>> join(Store& store, const JoinOptions& options) {
  return Join(store, options).run();
}

}  // namespace trireme::transport::tcp
