#include "trireme/transport/tcp_store_torch.h"

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/error.h"

namespace trireme::transport {
namespace {

std::chrono::milliseconds milliseconds(Seconds s) {
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(s.value * 1000)));
}

// c10d's messages go on for many lines (stack traces); the first one says it.
std::string first_line(const c10::Error& e) {
  const std::string text = e.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

class TcpStore : public Store {
 public:
  TcpStore(std::string place, std::string prefix, c10::intrusive_ptr<c10d::TCPStore> store)
      : place_(std::move(place)), prefix_(std::move(prefix)), store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    translate([&] { store_->set(prefix_ + key, std::vector<uint8_t>(value.begin(), value.end())); });
  }

  Result<std::string> get(const std::string& key, Seconds timeout) override {
    try {
      store_->wait({prefix_ + key}, milliseconds(timeout));
    } catch (const c10::DistNetworkError& e) {
      lost(e);
    } catch (const c10::DistStoreError&) {
      return Failure{ErrorCode::timeout, cat("no rank set '", key, "' in the store at ", place_, " within ",
                                             for_people(timeout))};
    }
    std::vector<uint8_t> value;
    translate([&] { value = store_->get(prefix_ + key); });
    return std::string(value.begin(), value.end());
  }

  int64_t add(const std::string& key, int64_t amount) override {
    int64_t sum = 0;
    translate([&] { sum = store_->add(prefix_ + key, amount); });
    return sum;
  }

 private:
  template <typename Body>
  void translate(Body body) {
    try {
      body();
    } catch (const c10::Error& e) {
      lost(e);
    }
  }
  [[noreturn]] void lost(const c10::Error& e) {
    fail(ErrorCode::peer_lost, "the store at ", place_, " is gone (", first_line(e),
         "): the process that opened it has probably ended");
  }

  std::string place_, prefix_;
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

}  // namespace

std::shared_ptr<Store> make_tcp_store(const std::string& host, int port, bool serve, int world_size,
                                      Seconds timeout, const std::string& prefix) {
  const std::string place = cat(host, ":", port);
  if (port < 1 || port > 65535)
    fail(ErrorCode::usage, "store port ", port, " (MASTER_PORT) is not in 1..65535");
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = serve;
  options.numWorkers = static_cast<size_t>(world_size);
  options.waitWorkers = false;  // ranks wait for each other's addresses, and can then name who is missing
  options.timeout = milliseconds(timeout);
  try {
    return std::make_shared<TcpStore>(place, prefix, c10::make_intrusive<c10d::TCPStore>(host, options));
  } catch (const c10::Error& e) {
    if (serve && std::string_view(e.what()).find("EADDRINUSE") != std::string_view::npos) {
      fail(ErrorCode::io, "port ", port,
           " is taken on this machine: end the program that holds it or set "
           "MASTER_PORT to a free one");
    }
    if (serve) fail(ErrorCode::io, "cannot open the store at ", place, ": ", first_line(e));
    fail(ErrorCode::timeout, "nobody answered at ", place, " within ", for_people(timeout),
         ": is rank 0 running, and are MASTER_ADDR and MASTER_PORT right? (", first_line(e), ")");
  }
}

}  // namespace trireme::transport
