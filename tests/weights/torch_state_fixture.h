#pragma once
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/build_model.h"
#include "models/hugging_face_tensor.h"
#include "torch_files/dcp_writer.h"
#include "weights/torch_training_state.h"

namespace tessera {

inline ModelConfig tiny_model(ModelType family, bool tied = false) {
  ModelConfig model = family_defaults(family);
  model.vocab_size = 11;
  model.hidden_width = 8;
  model.num_layers = 2;
  model.num_heads = 2;
  model.num_key_value_heads = family == ModelType::kGpt2 || family == ModelType::kGptNeox ? 2 : 1;
  model.intermediate_size = 12;
  model.max_context_width = 6;
  model.tie_word_embeddings = tied;
  if (family == ModelType::kGptNeox) model.rotary_pct = 0.5;
  if (family == ModelType::kGpt2) model.bias = true;  // as PyTorch's has them
  derive_shape(model);
  check(model);
  return model;
}

inline std::vector<Parameter> parameters_of(const ModelConfig& model) {
  return build_model(model, 1, 1, ModelHead::kLoss).parameters;
}

// Element e of what `kind` says ("weight", "exp_avg") of the parameter with this number: all
// differ.
inline float state_value(size_t parameter, const std::string& kind, int64_t element) {
  const int64_t of_kind = kind == "weight" ? 0 : kind == "exp_avg" ? 1 : 2;
  return static_cast<float>((static_cast<int64_t>(parameter) * 3 + of_kind) * 4096 + element);
}

// A checkpoint of torch.distributed.checkpoint, put together tensor by tensor.
class TorchStateWriter {
 public:
  explicit TorchStateWriter(std::filesystem::path directory)
      : directory_(std::move(directory)), file_(directory_, 0) {
    metadata_.files = {dcp_file_name(0)};
  }

  using Values = std::function<float(int64_t element)>;
  void tensor(const std::string& name, const Shape& shape, const Values& values,
              int64_t rows_of_chunk = 3) {
    DcpTensor tensor{name, "", DType::kF32, shape, {}};
    const int64_t rows = shape.empty() ? 1 : shape[0],
                  width = num_elements(shape) / std::max<int64_t>(rows, 1);
    for (int64_t row = 0; row < rows; row += rows_of_chunk) {
      TensorBox box = whole_box(shape);
      if (!shape.empty()) {
        box.begin[0] = row;
        box.shape[0] = std::min(rows_of_chunk, rows - row);
      }
      std::vector<float> content;
      for (int64_t e = 0; e < box.elements(); ++e) content.push_back(values(row * width + e));
      auto read = [&](uint64_t offset, std::span<std::byte> to) {
        std::memcpy(to.data(), reinterpret_cast<const std::byte*>(content.data()) + offset,
                    to.size());
      };
      tensor.chunks.push_back({box, file_.add_chunk(DType::kF32, box.shape, read)});
    }
    metadata_.tensors.push_back(std::move(tensor));
  }
  void item(const std::string& name, const std::function<void(PickleWriter&)>& value) {
    metadata_.items.push_back({name, file_.add_item(value)});
  }
  void item(const std::string& name, double value) {
    item(name, [value](PickleWriter& w) { w.number(value); });
  }
  void write() {
    file_.commit();
    write_dcp_metadata(directory_, metadata_);
  }

 private:
  std::filesystem::path directory_;
  DcpFileWriter file_;
  DcpMetadata metadata_;
};

// How a state is made. Names of parameters become what `name` says, elements are where `place` says
// (the element of the parameter at a place of the tensor).
struct TorchStateForm {
  std::string weights = "model.", optimizer = "optim.";
  std::function<std::string(const std::string&)> name = [](const std::string& n) { return n; };
  std::function<int64_t(const Parameter&, int64_t)> place = [](const Parameter&, int64_t e) {
    return e;
  };
  std::function<bool(const std::string&)> trained = [](const std::string&) { return true; };
  double steps = 7;
};

inline void write_torch_state(const std::filesystem::path& directory, const ModelConfig& model,
                              const TorchStateForm& form = {},
                              const std::function<void(TorchStateWriter&)>& more = {}) {
  TorchStateWriter writer(directory);
  const std::vector<Parameter> parameters = parameters_of(model);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    const Shape shape = hugging_face_tensor(model.model_type, p).shape;
    auto values = [&](const std::string& kind) {
      return [&, kind, i](int64_t e) { return state_value(i, kind, form.place(p, e)); };
    };
    writer.tensor(form.weights + form.name(p.name), shape, values("weight"));
    if (!form.trained(p.name)) continue;
    const std::string state = cat(form.optimizer, "state.", form.name(p.name), ".");
    for (const char* kind : {"exp_avg", "exp_avg_sq"})
      writer.tensor(state + kind, shape, values(kind));
    writer.tensor(state + "step", {}, [&](int64_t) { return static_cast<float>(form.steps); });
  }
  if (more) more(writer);
  writer.write();
}

// [in, out] of what is [out, in] here.
inline int64_t transposed_place(const Parameter& p, int64_t element) {
  const int64_t in = p.shape.back(), out = num_elements(p.shape) / in;
  return element % out * in + element / out;
}

// Row 2 i + j of a head is row j * width / 2 + i here.
inline int64_t paired_place(const Parameter& p, int64_t element, int64_t head_dim) {
  const int64_t width = p.shape.size() < 2 ? 1 : p.shape.back(), row = element / width,
                in_head = row % head_dim;
  return (row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2) * width + element % width;
}

}  // namespace tessera
