#include "trireme/serve/repository.h"

#include <algorithm>
#include <utility>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/serve/measure.h"
#include "trireme/serve/profile.h"

namespace trireme::serve {
namespace {

constexpr double kBusy =
    0.5;  // of what one row after the other carries: from there on batches are waited for
constexpr double kMeasureBudget = 10;  // seconds of a load that may go into measuring

// Runs the model a few times: warm, and wiser about joining rows.
void try_out(ModelInfo& info, Instances& instances) {
  for (auto& instance : instances) {
    try {
      if (info.joinable && !rows_are_independent(*instance)) {
        info.joinable = false;
        log::warning(cat("model ", info.name,
                         ": rows run together give other results than alone, so requests are ",
                         "not joined"));
      } else if (!info.joinable) {
        instance->run(make_inputs(info, 1, 1).inputs);
      }
    } catch (const Error& e) {
      // Made-up values may be ones that the model refuses; a real request will tell.
      log::warning(cat("model ", info.name, ": a trial run failed: ", e.what()));
    }
  }
}

RunnerOptions runner_options(const ModelOptions& o, const ModelInfo& info, const Instances& instances) {
  RunnerOptions r;
  r.slo_share = o.slo_share;
  r.timeout_s = o.timeout_ms / 1e3;
  r.limits = {o.slo_ms / 1e3, o.margin_ms / 1e3, o.max_queue};
  r.batching.max_rows = info.max_rows;
  double wait_s = o.batch_wait_ms.value.value_or(0) / 1e3;
  if (o.slo_ms > 0) {
    r.times.table = o.profile.empty()
                        ? measure_together(instances, info.max_rows, r.limits.slo_s, kMeasureBudget)
                        : profile_table(read_profile(o.profile), o.profile, o.name);
    if (!o.batch_wait_ms.value) {
      const auto choice = choose_batching(r.times.table, {r.limits.slo_s, r.limits.margin_s, info.max_rows});
      r.batching.max_rows = choice.rows;
      wait_s = choice.wait_s;
      r.batching.waits_from_rows_per_s =
          kBusy * static_cast<double>(o.instances) / r.times.table.front().seconds;
    }
  }
  if (!o.spill_url.empty()) {
    auto spill = resolve_spill(o.spill_url, o.spill_model.empty() ? o.name : o.spill_model, environment);
    spill.slo_s = r.limits.slo_s;
    spill.slo_share = o.slo_share;
    spill.most_at_once = o.spill_at_once;
    r.spill = std::make_shared<Spill>(spill);
  }
  r.batching.max_wait = std::chrono::duration_cast<Time>(std::chrono::duration<double>(wait_s));
  return r;
}

int64_t number(const std::string& version) {
  return std::stoll(version);
}

}  // namespace

ServingProfile profile_model(const ModelOptions& options, Instances instances,
                             const std::string& instance_type, int64_t threads) {
  ModelInfo info = instances[0]->info();
  info.max_rows = std::min(info.max_rows, options.max_batch);
  try_out(info, instances);
  if (!info.joinable) info.max_rows = 1;
  ServingProfile p;
  p.model = options.name;
  p.instance_type = instance_type;
  p.instances = options.instances;
  p.threads = options.threads > 0 ? options.threads : threads;
  p.slo_s = options.slo_ms / 1e3;
  p.margin_s = options.margin_ms / 1e3;
  const double longest = p.slo_s > 0 ? p.slo_s : kMeasureBudget;
  p.times = measure_together(instances, info.max_rows, longest, 3 * kMeasureBudget);
  p.choice = choose_batching(p.times, {p.slo_s, p.margin_s, info.max_rows});
  return p;
}

std::unique_ptr<ModelRunner> start_model(const ModelOptions& options, Instances instances,
                                         std::shared_ptr<ModelMetrics> metrics) {
  ModelInfo info = instances[0]->info();
  info.max_rows = std::min(info.max_rows, options.max_batch);
  try_out(info, instances);
  if (!info.joinable) info.max_rows = 1;
  const RunnerOptions r = runner_options(options, info, instances);
  log::info(cat("model ", info.name, " version ", info.version, ": ", instances.size(), " instance(s), ",
                info.joinable
                    ? cat("batches of up to ", r.batching.max_rows, " rows, wait ",
                          std::chrono::duration<double, std::milli>(r.batching.max_wait).count(), " ms")
                    : std::string("requests run one by one")));
  return std::make_unique<ModelRunner>(std::move(info), std::move(instances), r, std::move(metrics));
}

Repository::Repository(std::vector<ModelOptions> models, LoadInstances load) : load_(std::move(load)) {
  std::ranges::sort(models, {}, [](const ModelOptions& m) { return std::pair(m.name, number(m.version)); });
  for (auto& m : models) entries_.push_back({std::move(m), std::make_shared<ModelMetrics>(), nullptr});
}

void Repository::load_all() {
  for (size_t i = 0; i < entries_.size(); ++i)
    if (i == 0 || entries_[i].options.name != entries_[i - 1].options.name) load(entries_[i].options.name);
}

std::vector<Repository::Entry*> Repository::entries(const std::string& name) {
  std::vector<Entry*> found;
  for (auto& e : entries_)
    if (e.options.name == name) found.push_back(&e);
  if (found.empty()) throw RequestError(Reason::not_found, cat("no model is named '", name, "'"));
  return found;
}

void Repository::load(const std::string& name) {
  const std::lock_guard one_at_a_time(control_);
  const auto mine = entries(name);
  std::vector<std::shared_ptr<ModelRunner>> runners;
  try {
    for (const Entry* e : mine) {
      const auto begin = steady_clock().now();
      runners.push_back(start_model(e->options, load_(e->options), e->metrics));
      e->metrics->load_s = std::chrono::duration<double>(steady_clock().now() - begin).count();
    }
  } catch (const Error& e) {
    const std::lock_guard lock(mutex_);
    for (Entry* entry : mine) entry->why = e.what();
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < mine.size(); ++i) {
      mine[i]->runner.swap(runners[i]);
      mine[i]->unloaded = false;
      mine[i]->why.clear();
    }
  }
  for (const auto& old : runners)
    if (old) old->stop();
}

void Repository::unload(const std::string& name) {
  const std::lock_guard one_at_a_time(control_);
  std::vector<std::shared_ptr<ModelRunner>> old;
  {
    const std::lock_guard lock(mutex_);
    for (Entry* e : entries(name)) {
      old.push_back(std::exchange(e->runner, nullptr));
      e->unloaded = true;
      e->why = "unloaded";
    }
  }
  for (const auto& runner : old)
    if (runner) runner->stop();
}

const Repository::Entry& Repository::entry(const std::string& name, const std::string& version) const {
  const Entry* found = nullptr;
  bool known = false;
  for (const auto& e : entries_) {
    if (e.options.name != name) continue;
    known = true;
    const bool matches = version.empty() || (version.size() <= 9 && e.options.version == version);
    // Without a version the newest that is loaded.
    if (matches && (found == nullptr || e.runner)) found = &e;
  }
  if (!known) throw RequestError(Reason::not_found, cat("no model is named '", name, "'"));
  if (found == nullptr)
    throw RequestError(Reason::not_found, cat("model '", name, "' has no version '", version, "'"));
  return *found;
}

std::shared_ptr<ModelRunner> Repository::find(const std::string& name, const std::string& version) const {
  const std::lock_guard lock(mutex_);
  const Entry& e = entry(name, version);
  if (!e.runner) throw RequestError(Reason::unavailable, cat("model '", name, "' is not ready: ", e.why));
  return e.runner;
}

std::vector<std::string> Repository::versions(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& e : entries_)
    if (e.options.name == name && e.runner) all.push_back(e.options.version);
  return all;
}

std::vector<ModelState> Repository::states() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelState> all;
  for (const auto& e : entries_)
    all.push_back({e.options.name, e.options.version, e.runner != nullptr, e.why});
  return all;
}

bool Repository::all_ready() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(entries_, [](const Entry& e) { return e.runner || e.unloaded; });
}

std::vector<LabelledMetrics> Repository::metrics() const {
  std::vector<LabelledMetrics> all;
  for (const auto& e : entries_) all.push_back({e.options.name, e.options.version, e.metrics.get()});
  return all;
}

void Repository::stop() {
  const std::lock_guard one_at_a_time(control_);
  for (auto& e : entries_)
    if (e.runner) e.runner->stop();
}

}  // namespace trireme::serve
