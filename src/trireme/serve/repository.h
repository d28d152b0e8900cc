#pragma once
// The models being served, by name and version: loading, reloading and unloading while requests arrive.
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/serve/options.h"
#include "trireme/serve/profile.h"
#include "trireme/serve/runner.h"

namespace trireme::serve {

// Makes all instances of a model. Throws Error.
using LoadInstances = std::function<Instances(const ModelOptions&)>;

// Batching, admission and queue of a model from its options; measures what they need. Throws Error.
std::unique_ptr<ModelRunner> start_model(const ModelOptions& options, Instances instances,
                                         std::shared_ptr<ModelMetrics> metrics);

// What `serve --profile-model` writes: times, and the batching that follows from slo_ms. `threads` of each
// instance where the options leave it open.
ServingProfile profile_model(const ModelOptions& options, Instances instances,
                             const std::string& instance_type, int64_t threads);

struct ModelState {
  std::string name, version;
  bool ready = false;
  std::string why;  // not ready: the last failure, or "unloaded"
};

class Repository {
 public:
  Repository(std::vector<ModelOptions> models, LoadInstances load);

  // Loads every model; the first failure is thrown.
  void load_all();
  // All versions of one name, again from their files: the new ones take over when all are ready, then the old
  // ones finish what they have. On a failure, which is thrown, the old ones go on. RequestError(not_found)
  // for a name that the configuration lacks. Blocks for as long as that takes; calls follow one another.
  void load(const std::string& name);
  void unload(const std::string& name);

  // The newest version when `version` is empty. RequestError: not_found, or unavailable when it is not
  // loaded.
  std::shared_ptr<ModelRunner> find(const std::string& name, const std::string& version) const;
  std::vector<std::string> versions(const std::string& name) const;  // loaded ones, rising
  std::vector<ModelState> states() const;
  bool all_ready() const;
  std::vector<LabelledMetrics> metrics() const;
  void stop();  // every runner serves what waits and ends

 private:
  struct Entry {
    ModelOptions options;
    std::shared_ptr<ModelMetrics> metrics;  // survive reloads
    std::shared_ptr<ModelRunner> runner;    // null: not loaded
    std::string why = "loading";
    bool unloaded = false;  // on purpose
  };
  const Entry& entry(const std::string& name, const std::string& version) const;
  std::vector<Entry*> entries(const std::string& name);

  LoadInstances load_;
  std::mutex control_;  // one load or unload at a time
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // by name, then rising version
};

}  // namespace trireme::serve
