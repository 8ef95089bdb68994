#pragma once
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/float16.h"
#include "checkpoint/safetensors.h"
#include "hub/parameter_source.h"
#include "hub/pretrained_weights.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {

// A target's elements, in memory from its element 0 on.
inline std::function<void(int64_t, std::span<const float>)> into(std::vector<float>& memory) {
  return [&memory](int64_t to, std::span<const float> values) {
    std::copy(values.begin(), values.end(), memory.begin() + to);
  };
}

// Tensors to be written, with values that are exact in every type: quarters from -8 to 8, another
// sequence for each name.
class WeightFile {
 public:
  void add(const std::string& name, const Shape& shape, DType dtype = DType::kF32,
           const std::string& like = "") {
    const std::string& seed = like.empty() ? name : like;
    std::vector<std::byte>& bytes = content_[name];
    for (int64_t i = 0; i < num_elements(shape); ++i) {
      append(bytes, value(seed, i), dtype);
    }
    views_.push_back({name, dtype, shape, bytes.data()});
  }
  void write(const std::filesystem::path& path) const { write_safetensors(path, views_); }

  static float value(const std::string& name, int64_t element) {
    auto mixed = static_cast<uint64_t>(element) * 2654435761u + name.size() * 40503u +
                 static_cast<uint64_t>(name.front());
    return static_cast<float>(mixed % 65) / 4 - 8;
  }

 private:
  static void append(std::vector<std::byte>& bytes, float value, DType dtype) {
    auto put = [&](const auto& element) {
      auto* p = reinterpret_cast<const std::byte*>(&element);
      bytes.insert(bytes.end(), p, p + sizeof(element));
    };
    if (dtype == DType::kBF16) return put(BF16(value).bits);
    if (dtype == DType::kF16) return put(F16(value).bits);
    if (dtype == DType::kI32) return put(static_cast<int32_t>(value));
    put(value);
  }

  std::map<std::string, std::vector<std::byte>> content_;
  std::vector<TensorView> views_;
};

// All elements of a parameter.
inline std::vector<float> whole(const ParameterSource& source, const FileTensor& parameter) {
  std::vector<float> values(static_cast<size_t>(num_elements(parameter.shape)));
  source.read(parameter.name, 0, values);
  return values;
}

// Two families that differ in everything.
inline constexpr std::string_view kRotaryTables[] = {".rotary_emb.inv_freq"},
                                  kMasks[] = {".attn.bias", ".attn.masked_bias"};
inline constexpr FamilyNames kLlamaNames{"llama", "model.", "model.embed_tokens.weight",
                                         "lm_head.weight", kRotaryTables};
inline constexpr FamilyNames kGpt2Names{"gpt2", "transformer.", "transformer.wte.weight",
                                        "lm_head.weight", kMasks};

// The parameters of a model of one layer, as far as the files are concerned.
inline std::vector<FileTensor> tiny_llama(bool tied = false) {
  std::vector<FileTensor> shapes{{"model.embed_tokens.weight", {11, 6}},
                                 {"model.layers.0.mlp.gate_proj.weight", {4, 6}},
                                 {"model.norm.weight", {6}}};
  if (!tied) shapes.push_back({"lm_head.weight", {11, 6}});
  return shapes;
}

inline WeightFile file_of(const std::vector<FileTensor>& shapes, DType dtype = DType::kF32) {
  WeightFile file;
  for (const FileTensor& p : shapes) file.add(p.name, p.shape, dtype);
  return file;
}

}  // namespace tessera
