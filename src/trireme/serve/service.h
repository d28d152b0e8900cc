#pragma once
// The calls of the Open Inference Protocol, whatever wire they came over.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "trireme/serve/repository.h"

namespace trireme::serve {

// A request that was taken; what a server needs when its client goes away.
struct Pending {
  std::weak_ptr<ModelRunner> runner;
  ModelRunner::Ticket ticket = 0;
  void cancel() const;
};

struct ModelMetadata {
  ModelInfo info;
  std::vector<std::string> versions;
};

class Service {
 public:
  Service(std::shared_ptr<Repository> models, std::string server_version);

  bool ready() const { return !draining_ && models_->all_ready(); }
  const std::string& version() const { return version_; }
  static std::vector<std::string> extensions();
  // RequestError: not_found, unavailable.
  ModelMetadata metadata(const std::string& model, const std::string& version) const;
  bool model_ready(const std::string& model, const std::string& version) const;  // RequestError(not_found)

  // Calls `done` once, perhaps before it returns; what is wrong with the request arrives there too.
  Pending infer(InferRequest request, Time arrived, Done done);

  // Readiness goes off; requests are still served.
  void start_drain() { draining_ = true; }
  bool draining() const { return draining_; }
  Repository& models() { return *models_; }
  const Repository& models() const { return *models_; }

 private:
  std::shared_ptr<Repository> models_;
  std::string version_;
  std::atomic<bool> draining_{false};
};

}  // namespace trireme::serve
