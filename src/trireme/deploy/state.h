#pragma once
// The memory of a search: every probe is written down before the next begins, so that none is paid twice.
// File form: docs/reference/search.md, State.
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trireme/deploy/accounting.h"

namespace trireme::deploy {

class ProbeLog {
 public:
  virtual ~ProbeLog() = default;
  virtual std::span<const Probe> probes() const = 0;
  // These are about to run; `planned` holds what they are expected to use.
  virtual void begin(std::span<const Probe> planned) = 0;
  // They ended, whatever their outcome; takes the place of what begin() announced.
  virtual void end(std::span<const Probe> finished) = 0;
};

class MemoryLog : public ProbeLog {
 public:
  std::span<const Probe> probes() const override { return probes_; }
  void begin(std::span<const Probe>) override {}
  void end(std::span<const Probe> finished) override {
    probes_.insert(probes_.end(), finished.begin(), finished.end());
  }

 private:
  std::vector<Probe> probes_;
};

// A training that --launch started on a deployment.
struct Launch {
  Deployment deployment;
  double samples_done = 0;
  double hours = 0, usd = 0;
  std::string ended;  // "finished", "stopped: …", "failed: …"; empty: it is running, or was cut off
  bool operator==(const Launch&) const = default;
};

// In a JSON file, held by this process alone.
class StateFile : public ProbeLog {
 public:
  // Opens or makes the file and locks FILE.lock. Probes that were running when an earlier search was cut off
  // count as failed and are charged as planned. Error(usage): another process holds it, or the file belongs
  // to another job; Error(input): the file is broken.
  StateFile(std::filesystem::path path, std::string job);
  ~StateFile() override;
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  std::span<const Probe> probes() const override { return probes_; }
  void begin(std::span<const Probe> planned) override;
  void end(std::span<const Probe> finished) override;
  const std::vector<Launch>& launches() const { return launches_; }
  void set_launches(std::vector<Launch> launches);  // written at once

 private:
  void load();
  void save() const;
  std::filesystem::path path_;
  std::string job_;
  std::vector<Probe> probes_, running_;
  std::vector<Launch> launches_;
  int lock_ = -1;
};

}  // namespace trireme::deploy
