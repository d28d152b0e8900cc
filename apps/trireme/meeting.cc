#include "meeting.h"

#include <charconv>

#include "trireme/base/error.h"
#include "trireme/transport/tcp/secret.h"
#include "trireme/transport/tcp_store_torch.h"

namespace trireme::app {
namespace {

using transport::Place;

// Anybody may write into the agent's store, so what it says is only a hint: whoever answers at that port has
// to prove that he knows the secret.
int port_in(const std::string& text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size() || port < 1 || port > 65535)
    fail(ErrorCode::input, "the agent's store names port '", text, "' for rank 0");
  return port;
}

std::shared_ptr<transport::Rendezvous> meet_through_agent(const LaunchPlan& plan,
                                                          const transport::RendezvousOptions& options) {
  constexpr const char* kPort = "trireme rendezvous";
  const auto store =
      transport::make_tcp_store(plan.host, plan.port, false, plan.world, options.timeout, plan.attempt + "/");
  if (plan.rank == 0) {
    auto rendezvous = transport::open_rendezvous({plan.host, 0}, options);
    store->set(kPort, std::to_string(rendezvous->port()));
    return rendezvous;
  }
  const auto locate = [&] {
    auto port = store->get(kPort, options.timeout);
    if (!port.ok()) {
      fail(port.failure().code, "rank 0 did not join within ", for_people(options.timeout),
           " (transport.timeout): ", port.failure().message);
    }
    return Place{plan.host, port_in(port.value())};
  };
  return transport::join_rendezvous(locate, options);
}

}  // namespace

std::shared_ptr<transport::Rendezvous> meet(const LaunchPlan& plan,
                                            const transport::TransportOptions& options) {
  if (plan.world == 1) return nullptr;
  transport::RendezvousOptions own{.rank = plan.rank,
                                   .world = plan.world,
                                   .job = plan.attempt,
                                   .timeout = options.timeout,
                                   .silence = options.heartbeat_timeout};
  if (!options.secret_file.empty()) own.secret = transport::tcp::read_secret(options.secret_file);
  if (plan.agent_store) return meet_through_agent(plan, own);
  const Place place{plan.host, plan.port};
  if (plan.rank == 0) return transport::open_rendezvous(place, own);
  return transport::join_rendezvous([&] { return place; }, own);
}

}  // namespace trireme::app
