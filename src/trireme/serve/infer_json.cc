#include "trireme/serve/infer_json.h"

#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/serve/datatypes.h"

namespace trireme::serve {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;
using spec::Dtype;

constexpr size_t kMaxDepth = 100;

template <typename... Parts>
[[noreturn]] void invalid(const Parts&... parts) {
  throw RequestError(Reason::invalid, cat(parts...));
}

// --- reading

std::optional<element> member(const object& of, const char* key) {
  element found;
  if (of.at_key(key).get(found) != simdjson::SUCCESS) return std::nullopt;
  return found;
}

std::string text(const object& of, const char* key, const std::string& where, bool required) {
  const auto found = member(of, key);
  std::string_view value;
  if (!found) {
    if (required) invalid(where, "'", key, "' is missing");
    return {};
  }
  if (found->get(value) != simdjson::SUCCESS) invalid(where, "'", key, "' must be a string");
  return std::string(value);
}

std::optional<int64_t> whole(const object& of, const char* key, const std::string& where) {
  const auto found = member(of, key);
  if (!found) return std::nullopt;
  int64_t value = 0;
  if (found->get(value) != simdjson::SUCCESS) invalid(where, "'", key, "' must be a whole number");
  return value;
}

std::optional<bool> truth(const object& of, const char* key, const std::string& where) {
  const auto found = member(of, key);
  if (!found) return std::nullopt;
  bool value = false;
  if (found->get(value) != simdjson::SUCCESS) invalid(where, "'", key, "' must be true or false");
  return value;
}

// Parameters hold strings, numbers and booleans only.
std::optional<object> parameters(const object& of, const std::string& where) {
  const auto found = member(of, "parameters");
  if (!found) return std::nullopt;
  object all;
  if (found->get(all) != simdjson::SUCCESS) invalid(where, "'parameters' must be an object");
  for (const auto& [key, value] : all)
    if (value.type() == element_type::ARRAY || value.type() == element_type::OBJECT ||
        value.type() == element_type::NULL_VALUE)
      invalid(where, "parameter '", key, "' must be a string, a number or a boolean");
  return all;
}

spec::Shape shape_of(const object& tensor, const std::string& where) {
  const auto found = member(tensor, "shape");
  if (!found) invalid(where, "'shape' is missing");
  array sizes;
  if (found->get(sizes) != simdjson::SUCCESS) invalid(where, "'shape' must be an array");
  spec::Shape shape;
  for (const element size : sizes) {
    int64_t value = 0;
    if (size.get(value) != simdjson::SUCCESS || value < 0)
      invalid(where, "'shape' must hold whole numbers of 0 or more");
    shape.push_back(value);
  }
  return shape;
}

// Appends the numbers of one input's "data", nested or flat, as elements of type T.
template <typename T>
class DataReader {
 public:
  DataReader(std::vector<std::byte>& out, size_t elements, const std::string& where)
      : out_(out), limit_(elements), where_(where) {}

  void read(const array& values) {
    for (const element value : values) {
      if (value.type() == element_type::ARRAY)
        read(array(value));
      else
        put(convert(value));
    }
  }
  size_t count() const { return count_; }

 private:
  void put(T value) {
    if (++count_ > limit_) return;  // counted on, for the message
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof(T));
  }
  T convert(const element& value) const {
    if constexpr (std::is_same_v<T, bool>) {
      if (value.type() == element_type::BOOL) return bool(value);
      if (value.type() == element_type::INT64 && (int64_t(value) == 0 || int64_t(value) == 1))
        return int64_t(value) == 1;
      invalid(where_, "'data' of a BOOL tensor must hold true and false");
    } else if constexpr (std::is_floating_point_v<T>) {
      double number = 0;
      if (value.get(number) != simdjson::SUCCESS) invalid(where_, "'data' must hold numbers");
      const T narrow = static_cast<T>(number);
      if (!std::isfinite(narrow)) invalid(where_, "'data' holds ", number, ", which its type cannot hold");
      return narrow;
    } else {
      return integer(value);
    }
  }
  T integer(const element& value) const {
    using Limits = std::numeric_limits<T>;
    if (value.type() == element_type::INT64 && std::in_range<T>(int64_t(value)))
      return static_cast<T>(int64_t(value));
    if (value.type() == element_type::UINT64 && std::in_range<T>(uint64_t(value)))
      return static_cast<T>(uint64_t(value));
    invalid(where_, "'data' must hold whole numbers from ", +Limits::min(), " to ", +Limits::max());
  }

  std::vector<std::byte>& out_;
  size_t limit_, count_ = 0;
  const std::string& where_;
};

template <typename T>
size_t read_as(const array& data, size_t elements, const std::string& where, std::vector<std::byte>& out) {
  DataReader<T> reader(out, elements, where);
  reader.read(data);
  return reader.count();
}

size_t read_data(const array& data, Dtype dtype, size_t elements, const std::string& where,
                 std::vector<std::byte>& out) {
  switch (dtype) {
    case Dtype::boolean:
      return read_as<bool>(data, elements, where, out);
    case Dtype::u8:
      return read_as<uint8_t>(data, elements, where, out);
    case Dtype::u16:
      return read_as<uint16_t>(data, elements, where, out);
    case Dtype::u32:
      return read_as<uint32_t>(data, elements, where, out);
    case Dtype::u64:
      return read_as<uint64_t>(data, elements, where, out);
    case Dtype::i8:
      return read_as<int8_t>(data, elements, where, out);
    case Dtype::i16:
      return read_as<int16_t>(data, elements, where, out);
    case Dtype::i32:
      return read_as<int32_t>(data, elements, where, out);
    case Dtype::i64:
      return read_as<int64_t>(data, elements, where, out);
    case Dtype::f32:
      return read_as<float>(data, elements, where, out);
    case Dtype::f64:
      return read_as<double>(data, elements, where, out);
    default:
      invalid(where, datatype_name(dtype), " has no JSON form: send it as binary data");
  }
}

// A request or a response: an object with a list of tensors, and binary data behind it.
class BodyReader {
 public:
  BodyReader(std::shared_ptr<const std::string> body, size_t json_bytes)
      : body_(std::move(body)), next_binary_(json_bytes) {}

  InferRequest read_request() {
    const object root = parse();
    InferRequest request;
    request.id = text(root, "id", "", false);
    read_parameters(root, request);
    request.inputs = read_tensors(root, "inputs", "input");
    read_outputs(root, request);
    check_end();
    return request;
  }

  InferResponse read_response() {
    const object root = parse();
    InferResponse response;
    response.id = text(root, "id", "", false);
    response.model = text(root, "model_name", "", false);
    response.version = text(root, "model_version", "", false);
    response.outputs = read_tensors(root, "outputs", "output");
    check_end();
    return response;
  }

 private:
  object parse() {
    element document;
    object root;
    auto error = parser_.allocate(std::max<size_t>(next_binary_, 64), kMaxDepth);
    if (error == simdjson::SUCCESS) error = parser_.parse(body_->data(), next_binary_).get(document);
    if (error == simdjson::DEPTH_ERROR) invalid("the body's JSON nests more than ", kMaxDepth, " deep");
    if (error != simdjson::SUCCESS) invalid("the body is not JSON: ", simdjson::error_message(error));
    if (document.get(root) != simdjson::SUCCESS) invalid("the body must be a JSON object");
    return root;
  }

  void check_end() const {
    if (next_binary_ != body_->size())
      invalid("unexpected additional input data: ", body_->size() - next_binary_,
              " bytes follow the last binary tensor");
  }

  static void read_parameters(const object& root, InferRequest& request) {
    const auto all = parameters(root, "");
    if (!all) return;
    request.binary_outputs = truth(*all, "binary_data_output", "parameter ").value_or(false);
    request.priority = whole(*all, "priority", "parameter ").value_or(0);
    request.timeout_us = whole(*all, "timeout", "parameter ");
    if (request.priority < 0) invalid("parameter 'priority' must be 0 or more");
    if (request.timeout_us && *request.timeout_us < 0) invalid("parameter 'timeout' must be 0 or more");
    if (request.timeout_us == 0) request.timeout_us.reset();
  }

  std::vector<Tensor> read_tensors(const object& root, const char* list, const char* kind) {
    const auto found = member(root, list);
    array all;
    if (!found) invalid("'", list, "' is missing");
    if (found->get(all) != simdjson::SUCCESS) invalid("'", list, "' must be an array");
    std::vector<Tensor> tensors;
    for (const element one : all) {
      object fields;
      if (one.get(fields) != simdjson::SUCCESS) invalid("'", list, "' must hold objects");
      tensors.push_back(read_tensor(fields, kind));
    }
    return tensors;
  }

  Tensor read_tensor(const object& fields, const char* kind) {
    Tensor tensor;
    tensor.name = text(fields, "name", cat(kind, ": "), true);
    const std::string where = cat(kind, " '", tensor.name, "': ");
    const std::string datatype = text(fields, "datatype", where, true);
    const auto dtype = datatype_from_name(datatype);
    if (!dtype) invalid(where, "datatype '", datatype, "' is not one that models here take");
    tensor.dtype = *dtype;
    tensor.shape = shape_of(fields, where);
    const size_t bytes = tensor_bytes(tensor.shape, *dtype, where);
    const auto given = parameters(fields, where);
    const auto binary = given ? whole(*given, "binary_data_size", where) : std::nullopt;
    if (given && member(*given, "shared_memory_region"))
      throw RequestError(Reason::unsupported, where + "shared memory is not offered here");
    const auto data = member(fields, "data");
    if (binary && data) invalid(where, "has both 'data' and 'binary_data_size'; give one");
    if (binary)
      take_binary(tensor, *binary, bytes, where);
    else if (data)
      take_json(tensor, *data, bytes, where);
    else
      invalid(where, "'data' is missing");
    return tensor;
  }

  void take_binary(Tensor& tensor, int64_t given, size_t bytes, const std::string& where) {
    if (given < 0 || static_cast<size_t>(given) != bytes)
      invalid(where, "'binary_data_size' is ", given, ", but ", spec::to_text(tensor.shape), " of ",
              datatype_name(tensor.dtype), " takes ", bytes, " bytes");
    if (body_->size() - next_binary_ < bytes) invalid(where, "its binary data runs past the end of the body");
    const auto all = std::as_bytes(std::span(body_->data(), body_->size()));
    tensor.bytes = all.subspan(next_binary_, bytes);
    tensor.owner = body_;
    next_binary_ += bytes;
  }

  static void take_json(Tensor& tensor, const element& data, size_t bytes, const std::string& where) {
    array values;
    if (data.get(values) != simdjson::SUCCESS) invalid(where, "'data' must be an array");
    const size_t elements = bytes / spec::size_of(tensor.dtype);
    auto memory = std::make_shared<std::vector<std::byte>>();
    // A shape may promise more than the body holds, so memory grows with what is there.
    memory->reserve(std::min(elements, values.size()) * spec::size_of(tensor.dtype));
    const size_t count = read_data(values, tensor.dtype, elements, where, *memory);
    if (count != elements)
      invalid(where, "'data' holds ", count, " values, but shape ", spec::to_text(tensor.shape), " takes ",
              elements);
    tensor.bytes = *memory;
    tensor.owner = std::move(memory);
  }

  static void read_outputs(const object& root, InferRequest& request) {
    const auto found = member(root, "outputs");
    if (!found) return;
    array outputs;
    if (found->get(outputs) != simdjson::SUCCESS) invalid("'outputs' must be an array");
    for (const element output : outputs) {
      object fields;
      if (output.get(fields) != simdjson::SUCCESS) invalid("'outputs' must hold objects");
      RequestedOutput wanted;
      wanted.name = text(fields, "name", "output: ", true);
      const std::string where = cat("output '", wanted.name, "': ");
      const auto given = parameters(fields, where);
      if (given) wanted.binary = truth(*given, "binary_data", where);
      if (given && member(*given, "classification"))
        throw RequestError(Reason::unsupported, where + "classification is not offered here");
      if (given && member(*given, "shared_memory_region"))
        throw RequestError(Reason::unsupported, where + "shared memory is not offered here");
      request.outputs.push_back(std::move(wanted));
    }
  }

  simdjson::dom::parser parser_;
  std::shared_ptr<const std::string> body_;
  size_t next_binary_;
};

// --- writing

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <typename T>
void write_as(std::string& out, const Tensor& tensor, const char* kind) {
  char digits[40];
  out += '[';
  for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + at, sizeof value);
    if (at > 0) out += ',';
    if constexpr (std::is_floating_point_v<T>)
      if (!std::isfinite(value))
        invalid(kind, " '", tensor.name,
                "' holds NaN or infinity, which JSON cannot carry: ask for binary data");
    if constexpr (std::is_same_v<T, bool>)
      out += value ? "true" : "false";
    else
      out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
  out += ']';
}

void write_data(std::string& out, const Tensor& tensor, const char* kind) {
  switch (tensor.dtype) {
    case Dtype::boolean:
      return write_as<bool>(out, tensor, kind);
    case Dtype::u8:
      return write_as<uint8_t>(out, tensor, kind);
    case Dtype::u16:
      return write_as<uint16_t>(out, tensor, kind);
    case Dtype::u32:
      return write_as<uint32_t>(out, tensor, kind);
    case Dtype::u64:
      return write_as<uint64_t>(out, tensor, kind);
    case Dtype::i8:
      return write_as<int8_t>(out, tensor, kind);
    case Dtype::i16:
      return write_as<int16_t>(out, tensor, kind);
    case Dtype::i32:
      return write_as<int32_t>(out, tensor, kind);
    case Dtype::i64:
      return write_as<int64_t>(out, tensor, kind);
    case Dtype::f32:
      return write_as<float>(out, tensor, kind);
    case Dtype::f64:
      return write_as<double>(out, tensor, kind);
    default:
      invalid(kind, " '", tensor.name, "' is ", datatype_name(tensor.dtype),
              ", which has no JSON form: ask for binary data");
  }
}

// {"name":…,"datatype":…,"shape":[…], and "data" or its binary size.
void write_tensor(std::string& out, const Tensor& tensor, bool binary, const char* kind) {
  out += cat("{\"name\":", quoted(tensor.name), ",\"datatype\":\"", datatype_name(tensor.dtype),
             "\",\"shape\":[");
  for (size_t d = 0; d < tensor.shape.size(); ++d) out += cat(d > 0 ? "," : "", tensor.shape[d]);
  if (binary) {
    out += cat("],\"parameters\":{\"binary_data_size\":", tensor.bytes.size(), "}}");
  } else {
    out += "],\"data\":";
    write_data(out, tensor, kind);
    out += '}';
  }
}

template <typename IsBinary>
InferBody with_tensors(std::string head, const std::vector<Tensor>& tensors, const char* list,
                       const char* kind, const std::string& tail, IsBinary is_binary) {
  InferBody body{std::move(head), {}};
  size_t extra = 0;
  body.text += cat("\"", list, "\":[");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool binary = is_binary(tensors[i]);
    if (i > 0) body.text += ',';
    write_tensor(body.text, tensors[i], binary, kind);
    if (binary) extra += tensors[i].bytes.size();
  }
  body.text += "]" + tail + "}";
  const size_t json_bytes = body.text.size();
  body.text.reserve(json_bytes + extra);
  for (const Tensor& tensor : tensors) {
    if (!is_binary(tensor)) continue;
    body.json_bytes = json_bytes;
    body.text.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return body;
}

}  // namespace

InferRequest parse_infer_request(std::shared_ptr<const std::string> body, std::optional<int64_t> json_bytes) {
  const auto length = json_bytes ? static_cast<size_t>(*json_bytes) : body->size();
  TRIREME_CHECK(length <= body->size());
  return BodyReader(std::move(body), length).read_request();
}

InferResponse parse_infer_response(std::shared_ptr<const std::string> body,
                                   std::optional<int64_t> json_bytes) {
  const auto length = json_bytes ? static_cast<size_t>(*json_bytes) : body->size();
  TRIREME_CHECK(length <= body->size());
  return BodyReader(std::move(body), length).read_response();
}

InferRequest raw_infer_request(const ModelInfo& model, std::shared_ptr<const std::string> body) {
  if (model.inputs.size() != 1)
    invalid("a raw request needs a model with one input; ", model.name, " has ", model.inputs.size());
  const auto& input = model.inputs[0];
  InferRequest request;
  request.binary_outputs = true;
  Tensor tensor{input.name, input.dtype, input.shape, std::as_bytes(std::span(*body)), body};
  if (model.joinable && tensor.shape.size() > 1) tensor.shape[0] = 1;  // the extension takes the batch as 1
  spec::Shape known = tensor.shape;
  std::erase(known, TensorSpec::kAny);
  if (known.size() + 1 < tensor.shape.size())
    invalid("a raw request needs an input with at most one variable dimension; '", input.name, "' is ",
            spec::to_text(input.shape));
  const size_t unit = tensor_bytes(known, input.dtype, cat("input '", input.name, "': "));
  for (int64_t& size : tensor.shape)
    if (size == TensorSpec::kAny) size = unit == 0 ? 0 : static_cast<int64_t>(body->size() / unit);
  if (tensor_bytes(tensor.shape, input.dtype, "") != body->size())
    invalid("the raw body of ", body->size(), " bytes does not fill input '", input.name, "' of shape ",
            spec::to_text(input.shape));
  request.inputs.push_back(std::move(tensor));
  return request;
}

int64_t parse_header_length(std::string_view text, size_t body_bytes) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    invalid("Inference-Header-Content-Length must be a whole number");
  if (value < 0 || static_cast<size_t>(value) > body_bytes)
    invalid("Inference-Header-Content-Length is ", value, ", but the body has ", body_bytes, " bytes");
  return value;
}

InferBody render_infer_response(const InferResponse& response, const std::vector<RequestedOutput>& wanted,
                                bool binary_default) {
  std::string head =
      cat("{\"model_name\":", quoted(response.model), ",\"model_version\":", quoted(response.version), ",");
  if (!response.id.empty()) head += cat("\"id\":", quoted(response.id), ",");
  return with_tensors(std::move(head), response.outputs, "outputs", "output", "", [&](const Tensor& tensor) {
    for (const auto& output : wanted)
      if (output.name == tensor.name) return output.binary.value_or(binary_default);
    return binary_default;
  });
}

InferBody render_infer_request(const InferRequest& request, bool binary_inputs) {
  std::string head = "{";
  if (!request.id.empty()) head += cat("\"id\":", quoted(request.id), ",");
  std::string tail;
  if (!request.outputs.empty()) {
    tail = ",\"outputs\":[";
    for (size_t i = 0; i < request.outputs.size(); ++i)
      tail += cat(i > 0 ? "," : "", "{\"name\":", quoted(request.outputs[i].name),
                  ",\"parameters\":{\"binary_data\":",
                  request.outputs[i].binary.value_or(binary_inputs) ? "true" : "false", "}}");
    tail += ']';
  } else if (binary_inputs) {
    head += "\"parameters\":{\"binary_data_output\":true},";
  }
  return with_tensors(std::move(head), request.inputs, "inputs", "input", tail,
                      [&](const Tensor&) { return binary_inputs; });
}

}  // namespace trireme::serve
