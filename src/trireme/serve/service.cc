#include "trireme/serve/service.h"

#include <algorithm>

#include "trireme/serve/request_check.h"

namespace trireme::serve {

void Pending::cancel() const {
  if (const auto alive = runner.lock()) alive->cancel(ticket);
}

Service::Service(std::shared_ptr<Repository> models, std::string server_version)
    : models_(std::move(models)), version_(std::move(server_version)) {}

std::vector<std::string> Service::extensions() {
  return {"binary_tensor_data", "model_repository", "schedule_policy"};
}

ModelMetadata Service::metadata(const std::string& model, const std::string& version) const {
  return {models_->find(model, version)->info(), models_->versions(model)};
}

bool Service::model_ready(const std::string& model, const std::string& version) const {
  try {
    models_->find(model, version);
    return true;
  } catch (const RequestError& e) {
    if (e.reason() == Reason::not_found) throw;
    return false;
  }
}

namespace {

// The spill's own refusal says more than ours.
void refuse_or_spill(const ModelRunner& runner, const Rejection& refusal, InferRequest& request, Time arrived,
                     Done& done) {
  auto& metrics = runner.metrics();
  const auto& spill = runner.options().spill;
  if (!spill || refusal.reason != Reason::overloaded) {
    count_rejection(metrics, refusal.reason);
    return done(refusal);
  }
  // The metrics outlive the model's runner, whose owner holds them.
  Done counted = [done = std::move(done), kept = runner.shared_metrics(), arrived](InferResult result) {
    if (const auto* rejection = std::get_if<Rejection>(&result))
      count_rejection(*kept, rejection->reason);
    else
      count_success(*kept, steady_clock().now() - arrived);
    done(std::move(result));
  };
  if (const auto full = spill->send(request, arrived, counted))
    counted(*full);
  else
    ++metrics.spilled;
}

}  // namespace

Pending Service::infer(InferRequest request, Time arrived, Done done) {
  std::shared_ptr<ModelRunner> runner;
  try {
    while (true) {
      runner = models_->find(request.model, request.version);
      const int64_t rows = check_request(runner->info(), request);
      const auto outcome = runner->submit(request, rows, arrived, done);
      if (const auto* ticket = std::get_if<ModelRunner::Ticket>(&outcome)) return {runner, *ticket};
      const auto& refusal = std::get<Rejection>(outcome);
      // Replaced between find and submit: its successor takes the request.
      if (refusal.reason == Reason::unavailable && models_->find(request.model, request.version) != runner)
        continue;
      refuse_or_spill(*runner, refusal, request, arrived, done);
      return {};
    }
  } catch (const RequestError& e) {
    if (runner) count_rejection(runner->metrics(), e.reason());
    done(Rejection{e.reason(), e.what()});
    return {};
  }
}

}  // namespace trireme::serve
