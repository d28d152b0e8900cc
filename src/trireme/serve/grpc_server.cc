#include "trireme/serve/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include "inference.grpc.pb.h"
#include "trireme/base/error.h"
#include "trireme/serve/datatypes.h"

namespace trireme::serve {
namespace {

using spec::Dtype;

grpc::Status status_of(const Rejection& r) {
  switch (r.reason) {
    case Reason::invalid:
      return {grpc::StatusCode::INVALID_ARGUMENT, r.message};
    case Reason::not_found:
      return {grpc::StatusCode::NOT_FOUND, r.message};
    case Reason::too_large:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, r.message};
    case Reason::overloaded:
    case Reason::unavailable:
      return {grpc::StatusCode::UNAVAILABLE, r.message};
    case Reason::expired:
      return {grpc::StatusCode::DEADLINE_EXCEEDED, r.message};
    case Reason::cancelled:
      return {grpc::StatusCode::CANCELLED, r.message};
    case Reason::wrong_verb:
    case Reason::unsupported:
      return {grpc::StatusCode::UNIMPLEMENTED, r.message};
    case Reason::failed:
      return {grpc::StatusCode::INTERNAL, r.message};
  }
  return {grpc::StatusCode::INTERNAL, r.message};
}

template <typename... Parts>
[[noreturn]] void invalid(const Parts&... parts) {
  throw RequestError(Reason::invalid, cat(parts...));
}

// --- reading

using InputMessage = inference::ModelInferRequest::InferInputTensor;

template <typename T, typename Values>
void append(const Values& values, const std::string& where, std::vector<std::byte>& out) {
  for (const auto value : values) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      if (!std::in_range<T>(value))
        invalid(where, "its contents hold ", value, ", which its type cannot hold");
    const T narrow = static_cast<T>(value);
    const auto* bytes = reinterpret_cast<const std::byte*>(&narrow);
    out.insert(out.end(), bytes, bytes + sizeof(T));
  }
}

void append_contents(const inference::InferTensorContents& c, Dtype dtype, const std::string& where,
                     std::vector<std::byte>& out) {
  switch (dtype) {
    case Dtype::boolean:
      return append<bool>(c.bool_contents(), where, out);
    case Dtype::i8:
      return append<int8_t>(c.int_contents(), where, out);
    case Dtype::i16:
      return append<int16_t>(c.int_contents(), where, out);
    case Dtype::i32:
      return append<int32_t>(c.int_contents(), where, out);
    case Dtype::i64:
      return append<int64_t>(c.int64_contents(), where, out);
    case Dtype::u8:
      return append<uint8_t>(c.uint_contents(), where, out);
    case Dtype::u16:
      return append<uint16_t>(c.uint_contents(), where, out);
    case Dtype::u32:
      return append<uint32_t>(c.uint_contents(), where, out);
    case Dtype::u64:
      return append<uint64_t>(c.uint64_contents(), where, out);
    case Dtype::f32:
      return append<float>(c.fp32_contents(), where, out);
    case Dtype::f64:
      return append<double>(c.fp64_contents(), where, out);
    default:
      invalid(where, datatype_name(dtype), " has no typed contents: send raw_input_contents");
  }
}

Tensor read_input(const InputMessage& input, const std::string* raw) {
  const std::string where = cat("input '", input.name(), "': ");
  const auto dtype = datatype_from_name(input.datatype());
  if (!dtype) invalid(where, "datatype '", input.datatype(), "' is not one that models here take");
  Tensor tensor{input.name(), *dtype, {input.shape().begin(), input.shape().end()}, {}, nullptr};
  for (const int64_t size : tensor.shape)
    if (size < 0)
      invalid(where, "shape ", spec::to_text(tensor.shape), " must hold whole numbers of 0 or more");
  const size_t bytes = tensor_bytes(tensor.shape, *dtype, where);
  if (raw != nullptr) {
    if (input.has_contents()) invalid(where, "has both contents and raw_input_contents; give one");
    tensor.bytes = std::as_bytes(std::span(*raw));
  } else {
    auto memory = std::make_shared<std::vector<std::byte>>();
    append_contents(input.contents(), *dtype, where, *memory);
    tensor.bytes = *memory;
    tensor.owner = std::move(memory);
  }
  if (tensor.bytes.size() != bytes)
    invalid(where, "holds ", tensor.bytes.size(), " bytes, but ", spec::to_text(tensor.shape), " of ",
            input.datatype(), " takes ", bytes);
  return tensor;
}

std::optional<int64_t> whole(const google::protobuf::Map<std::string, inference::InferParameter>& parameters,
                             const char* name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return std::nullopt;
  const auto& p = found->second;
  using Choice = inference::InferParameter;
  if (p.parameter_choice_case() == Choice::kUint64Param && p.uint64_param() <= INT64_MAX)
    return static_cast<int64_t>(p.uint64_param());
  if (p.parameter_choice_case() != Choice::kInt64Param || p.int64_param() < 0)
    invalid("parameter '", name, "' must be a whole number of 0 or more");
  return p.int64_param();
}

// Views the message, which outlives the request.
InferRequest read_request(const inference::ModelInferRequest& message) {
  InferRequest request;
  request.model = message.model_name();
  request.version = message.model_version();
  request.id = message.id();
  request.priority = whole(message.parameters(), "priority").value_or(0);
  request.timeout_us = whole(message.parameters(), "timeout");
  if (request.timeout_us == 0) request.timeout_us.reset();
  const int raws = message.raw_input_contents_size();
  if (raws > 0 && raws != message.inputs_size())
    invalid("raw_input_contents holds ", raws, " entries for ", message.inputs_size(), " inputs");
  for (int i = 0; i < message.inputs_size(); ++i)
    request.inputs.push_back(
        read_input(message.inputs(i), raws > 0 ? &message.raw_input_contents(i) : nullptr));
  for (const auto& output : message.outputs()) request.outputs.push_back({output.name(), true});
  return request;
}

// --- writing

template <typename T, typename Values>
void extract(const Tensor& tensor, Values* values) {
  for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + at, sizeof value);
    values->Add(value);
  }
}

// False for types without typed contents.
bool write_contents(const Tensor& t, inference::InferTensorContents* c) {
  switch (t.dtype) {
    case Dtype::boolean:
      return extract<bool>(t, c->mutable_bool_contents()), true;
    case Dtype::i8:
      return extract<int8_t>(t, c->mutable_int_contents()), true;
    case Dtype::i16:
      return extract<int16_t>(t, c->mutable_int_contents()), true;
    case Dtype::i32:
      return extract<int32_t>(t, c->mutable_int_contents()), true;
    case Dtype::i64:
      return extract<int64_t>(t, c->mutable_int64_contents()), true;
    case Dtype::u8:
      return extract<uint8_t>(t, c->mutable_uint_contents()), true;
    case Dtype::u16:
      return extract<uint16_t>(t, c->mutable_uint_contents()), true;
    case Dtype::u32:
      return extract<uint32_t>(t, c->mutable_uint_contents()), true;
    case Dtype::u64:
      return extract<uint64_t>(t, c->mutable_uint64_contents()), true;
    case Dtype::f32:
      return extract<float>(t, c->mutable_fp32_contents()), true;
    case Dtype::f64:
      return extract<double>(t, c->mutable_fp64_contents()), true;
    default:
      return false;
  }
}

bool has_typed_contents(Dtype dtype) {
  return dtype != Dtype::f16 && dtype != Dtype::bf16;
}

// Raw when the client sent raw, or when a type has no other form: the two are not mixed.
void write_response(const InferResponse& response, bool raw, inference::ModelInferResponse* message) {
  message->set_model_name(response.model);
  message->set_model_version(response.version);
  message->set_id(response.id);
  raw |= !std::ranges::all_of(response.outputs, has_typed_contents, &Tensor::dtype);
  for (const auto& tensor : response.outputs) {
    auto* output = message->add_outputs();
    output->set_name(tensor.name);
    output->set_datatype(std::string(datatype_name(tensor.dtype)));
    output->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    if (raw)
      message->add_raw_output_contents(tensor.bytes.data(), tensor.bytes.size());
    else
      TRIREME_CHECK(write_contents(tensor, output->mutable_contents()));
  }
}

// --- calls

// A client's cancellation and the model's answer may come in any order, from two threads. Finish is called by
// the answer alone, once; a cancellation only asks for that answer early. What both touch outlives the
// reactor.
class InferReactor : public grpc::ServerUnaryReactor {
 public:
  void start(Service& service, InferRequest request, bool raw, inference::ModelInferResponse* message) {
    const auto shared = shared_;  // `this` may be gone when infer() returns
    const Pending pending =
        service.infer(std::move(request), steady_clock().now(), [this, raw, message](InferResult result) {
          if (const auto* response = std::get_if<InferResponse>(&result)) {
            write_response(*response, raw, message);
            Finish(grpc::Status::OK);
          } else {
            Finish(status_of(std::get<Rejection>(result)));
          }
        });
    bool cancel = false;
    {
      const std::lock_guard lock(shared->mutex);
      shared->pending = pending;
      cancel = shared->cancelled;
    }
    if (cancel) pending.cancel();
  }
  void OnCancel() override {
    Pending pending;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->cancelled = true;
      pending = shared_->pending;
    }
    pending.cancel();
  }
  void OnDone() override { delete this; }

 private:
  struct Shared {
    std::mutex mutex;
    Pending pending;
    bool cancelled = false;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

class Calls : public inference::GRPCInferenceService::CallbackService {
 public:
  Calls(serve::Service& service, bool model_control) : service_(service), model_control_(model_control) {}

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* context,
                                       const inference::ServerLiveRequest*,
                                       inference::ServerLiveResponse* response) override {
    response->set_live(true);
    return finish(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* context,
                                        const inference::ServerReadyRequest*,
                                        inference::ServerReadyResponse* response) override {
    response->set_ready(service_.ready());
    return finish(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context,
                                       const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) override {
    return guarded(context, [&] {
      response->set_ready(service_.model_ready(request->name(), request->version()) && !service_.draining());
    });
  }

  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context,
                                           const inference::ServerMetadataRequest*,
                                           inference::ServerMetadataResponse* response) override {
    response->set_name("trireme");
    response->set_version(service_.version());
    for (const auto& extension : serve::Service::extensions()) response->add_extensions(extension);
    return finish(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context,
                                          const inference::ModelMetadataRequest* request,
                                          inference::ModelMetadataResponse* response) override {
    return guarded(context, [&] {
      const auto metadata = service_.metadata(request->name(), request->version());
      response->set_name(metadata.info.name);
      for (const auto& version : metadata.versions) response->add_versions(version);
      response->set_platform(metadata.info.platform);
      for (const auto& t : metadata.info.inputs) describe(t, response->add_inputs());
      for (const auto& t : metadata.info.outputs) describe(t, response->add_outputs());
    });
  }

  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const inference::ModelInferRequest* request,
                                       inference::ModelInferResponse* response) override {
    auto* reactor = new InferReactor;  // deletes itself when gRPC is done with it
    try {
      InferRequest read = read_request(*request);
      shorten_by_deadline(*context, read);
      reactor->start(service_, std::move(read), request->raw_input_contents_size() > 0, response);
    } catch (const RequestError& e) {
      reactor->Finish(status_of({e.reason(), e.what()}));
    } catch (const std::bad_alloc&) {
      reactor->Finish(status_of({Reason::too_large, "not enough memory for this request"}));
    }
    return reactor;
  }

  grpc::ServerUnaryReactor* RepositoryIndex(grpc::CallbackServerContext* context,
                                            const inference::RepositoryIndexRequest* request,
                                            inference::RepositoryIndexResponse* response) override {
    for (const auto& state : service_.models().states()) {
      if (request->ready() && !state.ready) continue;
      auto* model = response->add_models();
      model->set_name(state.name);
      model->set_version(state.version);
      model->set_state(state.ready ? "READY" : "UNAVAILABLE");
      model->set_reason(state.why);
    }
    return finish(context, grpc::Status::OK);
  }

  grpc::ServerUnaryReactor* RepositoryModelLoad(grpc::CallbackServerContext* context,
                                                const inference::RepositoryModelLoadRequest* request,
                                                inference::RepositoryModelLoadResponse*) override {
    return control(context, [this, model = request->model_name()] { service_.models().load(model); });
  }

  grpc::ServerUnaryReactor* RepositoryModelUnload(grpc::CallbackServerContext* context,
                                                  const inference::RepositoryModelUnloadRequest* request,
                                                  inference::RepositoryModelUnloadResponse*) override {
    return control(context, [this, model = request->model_name()] { service_.models().unload(model); });
  }

 private:
  static grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext* context, const grpc::Status& status) {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  template <typename Body>
  static grpc::ServerUnaryReactor* guarded(grpc::CallbackServerContext* context, Body body) {
    try {
      body();
      return finish(context, grpc::Status::OK);
    } catch (const RequestError& e) {
      return finish(context, status_of({e.reason(), e.what()}));
    }
  }

  // Loading takes long, so it gets a thread of its own; Repository lets one work at a time.
  template <typename Body>
  grpc::ServerUnaryReactor* control(grpc::CallbackServerContext* context, Body body) {
    if (!model_control_)
      return finish(context,
                    status_of({Reason::unsupported,
                               "this server does not let clients load models (server.model_control)"}));
    auto* reactor = context->DefaultReactor();
    std::thread([reactor, body = std::move(body)] {
      try {
        body();
        reactor->Finish(grpc::Status::OK);
      } catch (const RequestError& e) {
        reactor->Finish(status_of({e.reason(), e.what()}));
      } catch (const std::exception& e) {
        reactor->Finish(status_of({Reason::invalid, e.what()}));
      }
    }).detach();  // the server's shutdown waits for Finish
    return reactor;
  }

  static void describe(const TensorSpec& t, inference::ModelMetadataResponse::TensorMetadata* to) {
    to->set_name(t.name);
    to->set_datatype(std::string(datatype_name(t.dtype)));
    to->mutable_shape()->Add(t.shape.begin(), t.shape.end());
  }

  // A client that will not wait any longer need not be served.
  static void shorten_by_deadline(const grpc::CallbackServerContext& context, InferRequest& request) {
    const auto left = context.deadline() - std::chrono::system_clock::now();
    constexpr auto kNoDeadline = std::chrono::hours(24 * 365);
    if (left > kNoDeadline) return;
    const auto us = std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::microseconds>(left).count());
    request.timeout_us = std::min(us, request.timeout_us.value_or(us));
  }

  serve::Service& service_;  // not the base class's
  bool model_control_;
};

}  // namespace

class GrpcServer::State {
 public:
  State(Service& service, const ServerOptions& options)
      : calls_(service, options.model_control == "explicit") {
    gpr_set_log_function([](gpr_log_func_args*) {});  // what matters is thrown, in one line
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    const bool v6 = options.host.find(':') != std::string::npos;
    const std::string host = v6 ? "[" + options.host + "]" : options.host;
    int port = 0;
    builder.AddListeningPort(cat(host, ":", options.grpc_port), grpc::InsecureServerCredentials(), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_body.value));
    builder.SetMaxSendMessageSize(-1);
    builder.RegisterService(&calls_);
    server_ = builder.BuildAndStart();
    if (!server_ || port == 0)
      fail(ErrorCode::io, "cannot listen on ", options.host, " port ", options.grpc_port,
           "; choose another server.grpc_port");
    port_ = static_cast<uint16_t>(port);
  }
  ~State() { drain(0); }

  uint16_t port() const { return port_; }
  void drain(double timeout_s) {
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                             std::chrono::duration<double>(timeout_s)));
    server_->Wait();
  }

 private:
  Calls calls_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
};

GrpcServer::GrpcServer(Service& service, const ServerOptions& options)
    : state_(std::make_unique<State>(service, options)) {}
GrpcServer::~GrpcServer() = default;
uint16_t GrpcServer::port() const {
  return state_->port();
}
void GrpcServer::drain(double timeout_s) {
  state_->drain(timeout_s);
}

}  // namespace trireme::serve
