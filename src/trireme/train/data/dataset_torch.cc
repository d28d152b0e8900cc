#include "trireme/train/data/dataset_torch.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/tensor/adaptor_torch.h"
#include "trireme/tensor/safetensors.h"
#include "trireme/train/data/gzip.h"
#include "trireme/train/data/idx.h"

namespace trireme::train {
namespace {

struct UserInput {
  std::string name;
  const spec::Value* value;
};

std::vector<UserInput> user_inputs(const spec::Graph& graph) {
  std::vector<UserInput> inputs;
  for (const auto& input : graph.inputs)
    if (input.kind == spec::InputKind::user)
      inputs.push_back({input.name, &graph.values.at(static_cast<size_t>(input.value))});
  return inputs;
}

// "i64 [B, 128]": the batch and symbolic sizes by letter.
std::string text_of(const spec::Value& value) {
  if (value.kind != spec::ValueKind::tensor) return "no tensor";
  std::string text = cat(name(value.dtype), " [");
  for (size_t d = 0; d < value.sizes.size(); ++d) {
    const auto& size = value.sizes[d];
    text += d > 0 ? ", " : "";
    text += d == 0 ? "B" : size.symbol.empty() ? cat(size.hint) : size.symbol;
  }
  return text + "]";
}

std::string text_of(spec::Dtype dtype, const spec::Shape& sample) {
  std::string text = cat(name(dtype), " [B");
  for (const int64_t extent : sample) text += cat(", ", extent);
  return text + "]";
}

// `sample` is the shape of one sample, without the batch dimension.
void check_input(const UserInput& input, spec::Dtype dtype, const spec::Shape& sample,
                 const std::string& source) {
  const auto& value = *input.value;
  bool fits = value.kind == spec::ValueKind::tensor && value.dtype == dtype &&
              value.sizes.size() == sample.size() + 1;
  for (size_t d = 0; fits && d < sample.size(); ++d)
    fits = !value.sizes[d + 1].symbol.empty() || value.sizes[d + 1].hint == sample[d];
  if (!fits)
    fail(ErrorCode::input, source, " gives ", text_of(dtype, sample), " for the graph's input '", input.name,
         "', which takes ", text_of(value));
}

void check_input_count(const std::vector<UserInput>& inputs, size_t count, const DataOptions& options,
                       std::string_view what) {
  if (inputs.size() != count)
    fail(ErrorCode::input, "data.kind '", options.kind, "' gives ", count, " inputs (", what,
         "), the graph takes ", inputs.size());
}

const std::string& needed(const std::string& value, std::string_view key, const DataOptions& options) {
  if (value.empty()) fail(ErrorCode::usage, key, ": a file is needed for data.kind '", options.kind, "'");
  return value;
}

at::Tensor empty(int64_t batch, const spec::Shape& sample, spec::Dtype dtype) {
  spec::Shape shape{batch};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return at::empty(shape, at::TensorOptions().dtype(tensor::to_torch(dtype)));
}

// Windows of consecutive tokens and the windows one token later, both int64 [B, context]. Token is the type
// in the file.
template <typename Token>
class Windows : public Dataset {
 public:
  Windows(const std::string& path, int64_t context) : path_(path), file_(path), context_(context) {
    if (file_.bytes().size() % sizeof(Token) != 0)
      fail(ErrorCode::input, path, ": ", file_.bytes().size(), " bytes are no whole number of ",
           sizeof(Token), "-byte tokens (data.dtype)");
    const auto tokens = static_cast<int64_t>(file_.bytes().size() / sizeof(Token));
    samples_ = std::max<int64_t>(tokens - 1, 0) / context;
    if (samples_ == 0)
      fail(ErrorCode::input, path, ": ", tokens,
           " tokens are too few for one window of data.context = ", context, " and its next token");
  }
  int64_t samples() const override { return samples_; }
  std::vector<at::Tensor> batch(std::span<const int64_t> ids) const override {
    const auto rows = static_cast<int64_t>(ids.size());
    at::Tensor windows = empty(rows, {context_}, spec::Dtype::i64),
               next = empty(rows, {context_}, spec::Dtype::i64);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = ids[static_cast<size_t>(row)] * context_;
      widen(begin, windows.mutable_data_ptr<int64_t>() + row * context_);
      widen(begin + 1, next.mutable_data_ptr<int64_t>() + row * context_);
    }
    return {windows, next};
  }
  std::string place(size_t, int64_t id) const override { return cat(path_, ", sample ", id); }

 private:
  void widen(int64_t begin, int64_t* out) const {
    const auto* tokens = reinterpret_cast<const Token*>(file_.bytes().data()) + begin;
    std::copy(tokens, tokens + context_, out);
  }
  std::string path_;
  FileBytes file_;
  int64_t context_;
  int64_t samples_ = 0;
};

// float32 images / 255 [B, 1, H, W] and int64 labels [B].
class Images : public Dataset {
 public:
  Images(const std::string& images, const std::string& labels)
      : paths_{images, labels}, images_(images), labels_(labels) {
    if (images_.shape().size() != 3)
      fail(ErrorCode::input, images, ": images have 3 dimensions [N, H, W], this file has ",
           spec::to_text(images_.shape()));
    if (labels_.shape().size() != 1)
      fail(ErrorCode::input, labels, ": labels have 1 dimension [N], this file has ",
           spec::to_text(labels_.shape()));
    if (images_.shape()[0] != labels_.shape()[0])
      fail(ErrorCode::input, labels, ": ", labels_.shape()[0], " labels for the ", images_.shape()[0],
           " images of ", images);
    if (samples() == 0) fail(ErrorCode::input, images, ": holds no image");
  }
  int64_t samples() const override { return images_.shape()[0]; }
  spec::Shape sample_shape() const { return {1, images_.shape()[1], images_.shape()[2]}; }
  std::vector<at::Tensor> batch(std::span<const int64_t> ids) const override {
    const auto rows = static_cast<int64_t>(ids.size());
    const auto pixels = static_cast<size_t>(spec::count(sample_shape()));
    at::Tensor images = empty(rows, sample_shape(), spec::Dtype::f32),
               labels = empty(rows, {}, spec::Dtype::i64);
    float* out = images.mutable_data_ptr<float>();
    for (size_t row = 0; row < ids.size(); ++row) {
      const auto id = static_cast<size_t>(ids[row]);
      for (const std::byte pixel : images_.data().subspan(id * pixels, pixels))
        *out++ = static_cast<float>(std::to_integer<int>(pixel)) / 255.0F;
      labels.mutable_data_ptr<int64_t>()[row] = std::to_integer<int64_t>(labels_.data()[id]);
    }
    return {images, labels};
  }
  std::string place(size_t input, int64_t id) const override {
    return cat(paths_.at(input), ", sample ", id);
  }

 private:
  std::array<std::string, 2> paths_;
  IdxFile images_, labels_;
};

// Rows of tensors that a safetensors file names as the graph names its inputs.
class Tensors : public Dataset {
 public:
  Tensors(const std::string& path, const std::vector<UserInput>& inputs) : path_(path), file_(path) {
    for (const auto& input : inputs) columns_.push_back(open_column(path, input));
    if (columns_.empty())
      fail(ErrorCode::input, path, ": the graph takes no inputs, so there is nothing to read");
    if (samples() == 0) fail(ErrorCode::input, path, ": holds no sample");
  }
  int64_t samples() const override { return columns_.front().samples; }
  std::vector<at::Tensor> batch(std::span<const int64_t> ids) const override {
    std::vector<at::Tensor> tensors;
    for (const auto& column : columns_) {
      at::Tensor rows = empty(static_cast<int64_t>(ids.size()), column.sample, column.dtype);
      auto* out = static_cast<std::byte*>(rows.mutable_data_ptr());
      for (const int64_t id : ids) {
        std::memcpy(out, column.bytes.data() + static_cast<size_t>(id) * column.row_bytes, column.row_bytes);
        out += column.row_bytes;
      }
      tensors.push_back(std::move(rows));
    }
    return tensors;
  }
  std::string place(size_t input, int64_t id) const override {
    return cat(path_, ": tensor '", columns_.at(input).name, "', sample ", id);
  }

 private:
  struct Column {
    std::string name;
    spec::Dtype dtype = spec::Dtype::f32;
    spec::Shape sample;
    int64_t samples = 0;
    size_t row_bytes = 0;
    std::span<const std::byte> bytes;
  };
  Column open_column(const std::string& path, const UserInput& input) const {
    const auto found = file_.entries().find(input.name);
    if (found == file_.entries().end()) {
      std::vector<std::string> names;
      for (const auto& [name, entry] : file_.entries()) names.push_back(name);
      const std::string hint = nearest(input.name, names);
      fail(ErrorCode::input, path, ": no tensor '", input.name, "' for the graph's input of that name",
           hint.empty() ? "" : " (did you mean '" + hint + "'?)");
    }
    const auto& entry = found->second;
    if (entry.shape.empty())
      fail(ErrorCode::input, path, ": tensor '", input.name,
           "' is a scalar; its first dimension must count samples");
    Column column{input.name,     entry.dtype, {entry.shape.begin() + 1, entry.shape.end()},
                  entry.shape[0], 0,           entry.bytes};
    column.row_bytes = static_cast<size_t>(spec::count(column.sample)) * spec::size_of(entry.dtype);
    check_input(input, column.dtype, column.sample, cat(path, ": tensor '", input.name, "'"));
    if (!columns_.empty() && column.samples != samples())
      fail(ErrorCode::input, path, ": tensor '", input.name, "' has ", column.samples,
           " samples, those before have ", samples());
    return column;
  }
  std::string path_;
  tensor::SafetensorsFile file_;
  std::vector<Column> columns_;
};

// The samples [begin, end) of another dataset.
class Range : public Dataset {
 public:
  Range(std::shared_ptr<const Dataset> whole, int64_t begin, int64_t end)
      : whole_(std::move(whole)), begin_(begin), end_(end) {}
  int64_t samples() const override { return end_ - begin_; }
  std::vector<at::Tensor> batch(std::span<const int64_t> ids) const override {
    std::vector<int64_t> shifted(ids.begin(), ids.end());
    for (int64_t& id : shifted) id += begin_;
    return whole_->batch(shifted);
  }
  std::string place(size_t input, int64_t id) const override { return whole_->place(input, id + begin_); }

 private:
  std::shared_ptr<const Dataset> whole_;
  int64_t begin_, end_;
};

std::unique_ptr<Dataset> open_windows(const DataOptions& options, const std::string& path,
                                      const std::vector<UserInput>& inputs) {
  check_input_count(inputs, 2, options, "int64 windows and their next tokens");
  for (const auto& input : inputs)
    check_input(input, spec::Dtype::i64, {options.context}, cat("data.context = ", options.context));
  if (options.kind == "bytes") return std::make_unique<Windows<uint8_t>>(path, options.context);
  if (options.dtype == "uint16") return std::make_unique<Windows<uint16_t>>(path, options.context);
  return std::make_unique<Windows<uint32_t>>(path, options.context);
}

std::unique_ptr<Dataset> open_images(const DataOptions& options, const std::string& images,
                                     const std::string& labels, const std::vector<UserInput>& inputs) {
  check_input_count(inputs, 2, options, "float32 images and int64 labels");
  auto dataset = std::make_unique<Images>(images, labels);
  check_input(inputs[0], spec::Dtype::f32, dataset->sample_shape(), images);
  check_input(inputs[1], spec::Dtype::i64, {}, labels);
  return dataset;
}

// The training files, or the evaluation ones; null when the latter are not given.
std::unique_ptr<Dataset> open_one(const DataOptions& options, bool evaluation,
                                  const std::vector<UserInput>& inputs) {
  if (options.kind == "idx") {
    if (evaluation && options.eval_images.empty() && options.eval_labels.empty()) return nullptr;
    const std::string prefix = evaluation ? "data.eval_" : "data.";
    return open_images(
        options, needed(evaluation ? options.eval_images : options.images, prefix + "images", options),
        needed(evaluation ? options.eval_labels : options.labels, prefix + "labels", options), inputs);
  }
  if (evaluation && options.eval_path.empty()) return nullptr;
  const std::string& path = evaluation ? options.eval_path : needed(options.path, "data.path", options);
  if (options.kind == "safetensors") return std::make_unique<Tensors>(path, inputs);
  return open_windows(options, path, inputs);
}

Datasets hold_out(std::unique_ptr<Dataset> all, double share) {
  const int64_t samples = all->samples();
  const auto held_out = static_cast<int64_t>(std::floor(static_cast<double>(samples) * share));
  if (held_out == 0 || held_out == samples)
    fail(ErrorCode::usage, "data.eval_share = ", share, " of ", samples, " samples leaves nothing to ",
         held_out == 0 ? "evaluate on" : "train on");
  const std::shared_ptr<const Dataset> whole = std::move(all);
  return {std::make_unique<Range>(whole, 0, samples - held_out),
          std::make_unique<Range>(whole, samples - held_out, samples)};
}

}  // namespace

Datasets open_datasets(const DataOptions& options, const spec::Graph& graph) {
  const auto inputs = user_inputs(graph);
  auto training = open_one(options, false, inputs);
  auto evaluation = open_one(options, true, inputs);
  if (options.eval_share == 0) return {std::move(training), std::move(evaluation)};
  if (evaluation != nullptr)
    fail(ErrorCode::usage, "data.eval_share and data.eval_", options.kind == "idx" ? "images" : "path",
         " are both given; leave one out");
  return hold_out(std::move(training), options.eval_share);
}

}  // namespace trireme::train
