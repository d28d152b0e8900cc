#include "trireme/transport/tcp/places.h"

#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::transport::tcp {
namespace {

bool is_loopback(uint32_t ip) {
  return ip >> 24 == kLoopback >> 24;
}

}  // namespace

std::string to_text(const Places& places) {
  std::string text = cat(places.host, " ", places.interfaces);
  for (const Address& a : places.addresses) text += " " + to_text(a);
  return text;
}

std::optional<Places> parse_places(const std::string& text) {
  std::istringstream in(text);
  Places places;
  if (!(in >> places.host >> places.interfaces)) return std::nullopt;
  for (std::string word; in >> word;) {
    const auto address = parse_address(word);
    if (!address) return std::nullopt;
    places.addresses.push_back(*address);
  }
  if (places.interfaces != 0 && places.interfaces != places.addresses.size()) return std::nullopt;
  return places;
}

std::string host_name() {
  std::string boot = read_file("/proc/sys/kernel/random/boot_id");
  boot.erase(boot.find_last_not_of('\n') + 1);
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
  return cat(boot, "/", network.st_ino);
}

std::vector<Address> addresses_of(const std::vector<Interface>& interfaces, uint16_t port) {
  std::vector<Address> out;
  for (const bool loopback : {false, true}) {
    for (const Interface& i : interfaces) {
      if (!i.up || i.loopback != loopback) continue;
      for (const auto& a : i.ipv4) out.push_back({a.ip, port});
    }
  }
  return out;
}

std::vector<Address> candidates(const Places& peer, const std::string& own_host,
                                const std::vector<Interface>& own, int index) {
  if (peer.interfaces > 0) return {peer.addresses[static_cast<size_t>(index) % peer.interfaces]};
  const bool same_host = peer.host == own_host;
  const auto near = [&](const Address& a) {
    return std::any_of(own.begin(), own.end(), [&](const Interface& i) {
      return i.up && !i.loopback &&
             std::any_of(i.ipv4.begin(), i.ipv4.end(),
                         [&](const Interface::Ipv4& mine) { return ((mine.ip ^ a.ip) & mine.mask) == 0; });
    });
  };
  const auto order = [&](const Address& a) { return is_loopback(a.ip) ? 0 : near(a) ? 1 : 2; };
  std::vector<Address> out;
  for (const Address& a : peer.addresses) {
    if (same_host || !is_loopback(a.ip)) out.push_back(a);
  }
  std::stable_sort(out.begin(), out.end(),
                   [&](const Address& a, const Address& b) { return order(a) < order(b); });
  return out;
}

}  // namespace trireme::transport::tcp
