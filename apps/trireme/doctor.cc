#include "doctor.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/transport/transport.h"

namespace trireme::app {
namespace {

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// The value after "name" in a file of "name : value" lines.
std::string field(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(name)) continue;
    const auto value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

Bytes memory(const std::string& name) {
  const auto text = field("/proc/meminfo", name);
  return {text.empty() ? 0 : std::stoll(text) * 1024};
}

std::string instruction_sets() {
  const auto flags = field("/proc/cpuinfo", "flags") + " " + field("/proc/cpuinfo", "Features");
  std::istringstream words(flags);
  std::string found;
  for (std::string word; words >> word;) {
    for (const char* known :
         {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16"}) {
      if (word == known) found += (found.empty() ? "" : " ") + word;
    }
  }
  return found.empty() ? "none of those that the kernels use" : found;
}

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

// What the driver says; virtual interfaces say nothing or -1.
std::string link_speed(const std::string& interface) {
  std::ifstream in("/sys/class/net/" + interface + "/speed");
  double mbit = 0;
  if (!(in >> mbit) || mbit <= 0) return "speed unknown";
  return for_people(Rate{mbit * 1e6 / 8});
}

std::vector<Finding> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {{"interfaces", false, std::strerror(errno)}};
  std::map<std::string, std::string> addresses;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const auto text = address_text(i->ifa_addr);
    if (!text.empty()) addresses[i->ifa_name] += text + ", ";
  }
  ::freeifaddrs(list);
  std::vector<Finding> findings;
  for (const auto& [name, text] : addresses)
    findings.push_back({"interface " + name, true, text + link_speed(name)});
  return findings;
}

// Empty on success, else why not.
std::string connect_within(const addrinfo& to, Seconds timeout) {
  const Socket socket(::socket(to.ai_family, to.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to.ai_protocol));
  if (socket.get() < 0) return std::strerror(errno);
  if (::connect(socket.get(), to.ai_addr, to.ai_addrlen) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  pollfd wait{socket.get(), POLLOUT, 0};
  if (::poll(&wait, 1, static_cast<int>(timeout.value * 1000)) <= 0)
    return "no answer within " + for_people(timeout);
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? "" : std::strerror(error);
}

Finding check_loopback() {
  const Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (listener.get() < 0 || ::bind(listener.get(), generic, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), generic, &size) != 0) {
    return {"tcp on 127.0.0.1", false, std::strerror(errno)};
  }
  addrinfo to{};
  to.ai_family = AF_INET;
  to.ai_socktype = SOCK_STREAM;
  to.ai_addr = generic;
  to.ai_addrlen = size;
  const auto problem = connect_within(to, Seconds{5});
  return {"tcp on 127.0.0.1", problem.empty(), problem.empty() ? "connects" : problem};
}

// One rank of a two-rank exchange: sends its number, receives the other's. Throws Error.
void exchange(int rank, transport::Store& store) {
  transport::TransportOptions options;
  options.timeout = Seconds{10};
  const auto wire = transport::make_ucx(rank, 2, store, options);
  const auto mine = static_cast<std::byte>(rank + 1);
  std::byte theirs{};
  int open = 2;
  std::optional<Failure> failure;
  const auto done = [&](Status status) {
    --open;
    if (!status) failure = status.failure();
  };
  wire->receive(1 - rank, {}, {&theirs, 1}, done);
  wire->send(1 - rank, {}, {&mine, 1}, done);
  const auto deadline = Deadline::after(steady_clock(), 10);
  while (open > 0 && steady_clock().now() < deadline.at) wire->progress(deadline);
  if (open > 0) fail(ErrorCode::timeout, "no message within 10 s");
  if (failure) throw Error(failure->code, failure->message);
  if (theirs != static_cast<std::byte>(2 - rank)) fail(ErrorCode::internal, "a wrong message arrived");
  // Leaving earlier would close the endpoint on which the other side still sends.
  store.set(cat("done ", rank), "1");
  store.get(cat("done ", 1 - rank), Seconds{10}).value();
}

}  // namespace

std::vector<Finding> check_machine() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool known = ::sched_getaffinity(0, sizeof cores, &cores) == 0;
  return {{"cores", known, cat(CPU_COUNT(&cores), ", ", field("/proc/cpuinfo", "model name"))},
          {"memory", memory("MemAvailable").value > 0,
           cat(for_people(memory("MemAvailable")), " available of ", for_people(memory("MemTotal")))},
          {"instruction sets", true, instruction_sets()}};
}

std::vector<Finding> check_network() {
  auto findings = list_interfaces();
  findings.push_back(check_loopback());
  return findings;
}

std::vector<Finding> check_transports() {
  const auto store = transport::make_memory_store();
  std::string problems[2];
  const auto side = [&](int rank) {
    try {
      exchange(rank, *store);
    } catch (const Error& error) {
      problems[rank] = error.what();
    }
  };
  std::thread other(side, 1);
  side(0);
  other.join();
  const auto& problem = problems[0].empty() ? problems[1] : problems[0];
  return {{"transport ucx", problem.empty(), problem.empty() ? "carries messages" : problem},
          {"transport loopback, sim", true, "built in, for ranks that are threads"}};
}

Finding check_folder(const std::string& folder) {
  const auto probe = std::filesystem::path(folder) / cat(".trireme-doctor-", ::getpid());
  try {
    write_file(probe, "x");
  } catch (const Error& error) {
    return {"folder " + folder, false, error.what()};
  }
  std::error_code ignored;
  std::filesystem::remove(probe, ignored);
  const auto space = std::filesystem::space(folder, ignored);
  return {"folder " + folder, true,
          cat("writable, ", for_people(Bytes{static_cast<int64_t>(space.available)}), " free")};
}

Finding check_peer(const std::string& host_and_port, Seconds timeout) {
  const auto colon = host_and_port.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == host_and_port.size()) {
    fail(ErrorCode::usage, "--peer ", host_and_port, ": write host:port, e.g. 10.0.0.2:29500");
  }
  const std::string digits = host_and_port.substr(colon + 1);
  int port = 0;
  const auto [end, error_code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error_code != std::errc{} || end != digits.data() + digits.size() || port < 1 || port > 65535)
    fail(ErrorCode::usage, "--peer ", host_and_port, ": the port is a number from 1 to 65535");
  Finding finding{"peer " + host_and_port, false, ""};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host_and_port.substr(0, colon).c_str(), digits.c_str(), &hints, &found);
  if (error != 0) {
    finding.detail = ::gai_strerror(error);
    return finding;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  for (const addrinfo* to = found; to != nullptr && !finding.ok; to = to->ai_next) {
    const auto begin = steady_clock().now();
    const auto problem = connect_within(*to, timeout);
    const auto took = std::chrono::duration<double>(steady_clock().now() - begin).count();
    finding.ok = problem.empty();
    finding.detail = finding.ok ? "connects in " + for_people(Seconds{took}) : problem;
  }
  return finding;
}

}  // namespace trireme::app
