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
      count_rejection(runner->metrics(), refusal.reason);
      done(refusal);
      return {};
    }
  } catch (const RequestError& e) {
    if (runner) count_rejection(runner->metrics(), e.reason());
    done(Rejection{e.reason(), e.what()});
    return {};
  }
}

}  // namespace trireme::serve
