#include "trireme/transport/transport.h"

namespace trireme::transport {

std::string to_text(const MessageId& id) {
  return cat("channel ", id.channel, ", step ", id.step, ", item ", id.item, ", part ", id.part);
}

uint64_t to_tag(int sender, const MessageId& id) {
  if (sender < 0 || sender >= kMaxRanks) fail(ErrorCode::usage, "rank ", sender, " is not below ", kMaxRanks);
  if (id.channel > kChannels)
    fail(ErrorCode::usage, "message channel ", id.channel, " is not below ", kChannels);
  if (id.item >= kItems) fail(ErrorCode::usage, "message item ", id.item, " is not below ", kItems);
  if (id.part >= kParts) fail(ErrorCode::usage, "message part ", id.part, " is not below ", kParts);
  return uint64_t(sender) << 52 | uint64_t{id.channel} << 42 | uint64_t{id.step & 0xffff} << 26 |
         uint64_t{id.item} << 13 | id.part;
}

Failure size_mismatch(int peer, const MessageId& id, size_t sent, size_t expected) {
  return {ErrorCode::internal,
          cat("the message of rank ", peer, " (", to_text(id), ") has ", sent, " bytes where ", expected,
              " were expected: the ranks run different programs")};
}

void TransportOptions::list(OptionList& o) {
  o.add("kind", kind, "wire between ranks: tcp or ucx, or loopback and sim for one process")
      .one_of({"tcp", "ucx", "loopback", "sim"});
  o.add("interface", interface_name,
        "network interface, e.g. eth0: only that one; tcp takes several: eth0,eth1")
      .local();
  o.add("connections", connections, "connections per pair of ranks (and interface); ucx has 1")
      .at_least(1)
      .at_most(64);
  o.add("rate_limit", rate_limit, "limit of what this rank sends, e.g. 1gbit; 0: none");
  o.add("latency", latency, "delay added to each message, e.g. 1ms").at_most(3600);
  o.add("secret_file", secret_file, "file with the secret that ranks share").local();
  o.add("timeout", timeout, "a wait longer than this is a lost peer").above(0).at_most(1'000'000);
  o.add("heartbeat_timeout", heartbeat_timeout,
        "a process that gives no sign of life for this long is lost; slow ones do")
      .at_least(1)
      .at_most(1'000'000);
}

std::unique_ptr<Transport> make_transport(int rank, int size, Store& store, const TransportOptions& options) {
  if (rank < 0 || rank >= size) fail(ErrorCode::usage, "rank ", rank, " is not one of ", size, " ranks");
  if (size == 1) return std::move(make_loopback(1).front());  // nobody to talk to: no network is touched
  if (options.kind != "ucx" && options.kind != "tcp") {
    fail(ErrorCode::usage, "transport.kind = \"", options.kind, "\" joins threads of one process, not ", size,
         " processes; use \"tcp\" or \"ucx\"");
  }
  auto made =
      options.kind == "ucx" ? make_ucx(rank, size, store, options) : make_tcp(rank, size, store, options);
  if (options.rate_limit.bytes_per_second > 0 || options.latency.value > 0) {
    made = make_paced(std::move(made), options.rate_limit, options.latency, steady_clock());
  }
  return made;
}

}  // namespace trireme::transport
