#include "weights/gguf_export.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "hub/gguf_writer.h"
#include "hub/weight_writer.h"
#include "models/build_model.h"
#include "models/model_family.h"
#include "nn/rotary.h"
#include "tokenizer/tokenizer.h"
#include "weights/gguf_tokenizer.h"
#include "weights/zeros_elsewhere.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;

// Rows of a tensor in the order in which llama.cpp wants them.
enum class RowOrder { kSame, kPairs, kHeads };

struct GgufName {
  std::string_view ours, theirs;
  RowOrder order = RowOrder::kSame;
};

constexpr std::array<GgufName, 14> kLlamaNames{{
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"self_attn.q_proj", "attn_q", RowOrder::kPairs},
    {"self_attn.k_proj", "attn_k", RowOrder::kPairs},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
}};
constexpr std::array<GgufName, 10> kGpt2Names{{
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.ln_f", "output_norm"},
    {"lm_head", "output"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
}};
constexpr std::array<GgufName, 9> kNeoxNames{{
    {"gpt_neox.embed_in", "token_embd"},
    {"gpt_neox.final_layer_norm", "output_norm"},
    {"embed_out", "output"},
    {"input_layernorm", "attn_norm"},
    {"attention.query_key_value", "attn_qkv", RowOrder::kHeads},
    {"attention.dense", "attn_output"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.dense_h_to_4h", "ffn_up"},
    {"mlp.dense_4h_to_h", "ffn_down"},
}};

struct Architecture {
  std::string_view name;
  std::span<const GgufName> names;
  bool pairs = false;  // its programs rotate neighbours, so rows of queries and keys move
};

Architecture architecture_of(const ModelConfig& model) {
  switch (model.model_type) {
    case ModelType::kLlamaV2:
    case ModelType::kLlamaV3:
    case ModelType::kMistral: return {"llama", kLlamaNames, true};
    case ModelType::kQwen2: return {"qwen2", kLlamaNames};
    case ModelType::kQwen3: return {"qwen3", kLlamaNames};
    case ModelType::kGpt2: return {"gpt2", kGpt2Names};
    case ModelType::kGptNeox: return {"gptneox", kNeoxNames};
    default: break;
  }
  throw UserError(
      cat("models of type ", name(model.model_type), " cannot be written to a GGUF file yet"));
}

// "model.layers.3.mlp.up_proj.weight" -> "blk.3.ffn_up.weight"
std::pair<std::string, RowOrder> gguf_name(const Architecture& to, const std::string& parameter) {
  const size_t end = parameter.rfind('.');
  const std::string_view whole = std::string_view(parameter).substr(0, end),
                         suffix = std::string_view(parameter).substr(end);
  std::string layer;
  std::string_view inside = whole;
  for (std::string_view list : {"model.layers.", "transformer.h.", "gpt_neox.layers."}) {
    if (!whole.starts_with(list)) continue;
    const size_t dot = whole.find('.', list.size());
    layer = cat("blk.", whole.substr(list.size(), dot - list.size()), ".");
    inside = whole.substr(dot + 1);
  }
  auto found = std::ranges::find(to.names, inside, &GgufName::ours);
  TESSERA_CHECK(found != to.names.end(), cat("no name for '", parameter, "'"));
  RowOrder order = found->order == RowOrder::kPairs && !to.pairs ? RowOrder::kSame : found->order;
  return {cat(layer, found->theirs, suffix), order};
}

class GgufExport {
 public:
  GgufExport(GgufWriter& file, const ModelConfig& model, const ParameterSource& source,
             const GgufOptions& options)
      : file_(file),
        model_(model),
        source_(source),
        options_(options),
        to_(architecture_of(model)),
        parameters_(build_model(model, 1, 1, ModelHead::kLogits).parameters) {}

  void write_sizes(const std::string& title) {
    refuse_unknown();
    file_.text("general.architecture", to_.name);
    file_.text("general.type", "model");
    file_.text("general.name", title);
    file_.number("general.alignment", 32);
    file_.number("general.quantization_version", 2);
    file_.number("general.file_type", options_.dtype == DType::kF32   ? 0
                                      : options_.dtype == DType::kF16 ? 1
                                                                      : 32);
    const ModelConfig& m = model_;
    number("block_count", m.num_layers);
    number("context_length", m.max_context_width);
    number("embedding_length", m.hidden_width);
    number("feed_forward_length", feed_forward());
    number("attention.head_count", m.num_heads);
    number("vocab_size", m.vocab_size);
    if (to_.names.data() == kLlamaNames.data()) {
      number("attention.head_count_kv", m.num_key_value_heads);
      file_.real(key("attention.layer_norm_rms_epsilon"), m.norm_epsilon);
      number("attention.key_length", m.head_dim);
      number("attention.value_length", m.head_dim);
    } else {
      file_.real(key("attention.layer_norm_epsilon"), m.norm_epsilon);
    }
    if (m.model_type == ModelType::kGptNeox)
      file_.truth(key("use_parallel_residual"), m.parallel_residual);
    if (m.model_type != ModelType::kGpt2) write_rope();
  }

  void write_tensors() {
    std::vector<GgufWriter::Tensor> tensors;
    auto add = [&](std::string name, const Parameter& p) {
      tensors.push_back({std::move(name), dtype_of(p), shape_of(p)});
      total_ += num_elements(p.shape) * size_of(dtype_of(p));
    };
    for (const Parameter& p : parameters_) add(gguf_name(to_, p.name).first, p);
    const Parameter* head = repeated_head();
    if (head) add("output.weight", *head);
    const std::vector<float> factors = rope_factors();
    if (!factors.empty())
      tensors.push_back({"rope_freqs.weight", DType::kF32, {std::ssize(factors)}});
    file_.begin_tensors(tensors);
    for (const Parameter& p : parameters_) write_tensor(p);
    if (head) write_tensor(*head);
    if (!factors.empty()) file_.write(factors.data(), factors.size() * sizeof(float));
  }

 private:
  std::string key(std::string_view name) const { return cat(to_.name, ".", name); }
  void number(std::string_view name, int64_t value) { file_.number(key(name), value); }

  // What llama.cpp's programs would not open, or compute in another way.
  void refuse_unknown() const {
    const ModelConfig& m = model_;
    std::string what;
    if (m.model_type == ModelType::kQwen3 && (m.attention_bias || m.attention_output_bias))
      what = "whose attention has biases";
    if (m.model_type == ModelType::kQwen2 && m.head_dim * m.num_heads != m.hidden_width)
      what = "whose heads together are not as wide as the model";
    if (to_.name != "llama" && m.rope_scaling.type == RopeScalingType::kLlama3)
      what = "whose rope is scaled as Llama 3's";
    if (!what.empty())
      throw UserError(cat("a ", name(m.model_type), " model ", what,
                          " cannot be written to a GGUF file: llama.cpp knows none"));
  }

  // The embedding once more: of this family llama.cpp does not take it where there is no head.
  const Parameter* repeated_head() const {
    if (model_.model_type != ModelType::kGptNeox || !model_.tie_word_embeddings) return nullptr;
    return &*std::ranges::find(parameters_, "gpt_neox.embed_in.weight", &Parameter::name);
  }

  int64_t feed_forward() const {
    for (const Parameter& p : parameters_) {
      if (p.name.ends_with("up_proj.weight") || p.name.ends_with("c_fc.weight") ||
          p.name.ends_with("dense_h_to_4h.weight"))
        return shape_of(p)[0];
    }
    return model_.intermediate_size;
  }

  // Matrices as rows, everything else flat.
  static Shape shape_of(const Parameter& p) {
    const int64_t elements = num_elements(p.shape);
    if (p.shape.size() < 2 || p.name.ends_with(".bias")) return {elements};
    return {elements / p.shape.back(), p.shape.back()};
  }
  // Its programs add and multiply by vectors, and add positions, in f32.
  DType dtype_of(const Parameter& p) const {
    const bool f32 = shape_of(p).size() == 1 || p.name.ends_with("wpe.weight");
    return f32 ? DType::kF32 : options_.dtype;
  }

  void write_rope() {
    const RopeScaling& scaling = model_.rope_scaling;
    number("rope.dimension_count", rotary_width(model_));
    file_.real(key("rope.freq_base"), model_.rope_theta);
    switch (scaling.type) {
      case RopeScalingType::kNone:
      case RopeScalingType::kDynamic:  // within the model's positions the same
      case RopeScalingType::kLlama3: break;
      case RopeScalingType::kLinear:
        file_.text(key("rope.scaling.type"), "linear");
        file_.real(key("rope.scaling.factor"), scaling.factor);
        break;
      case RopeScalingType::kYarn:
        throw UserError(
            "a model whose rope is scaled by YaRN cannot be written to a GGUF file yet");
    }
  }

  // By which llama.cpp divides the frequencies.
  std::vector<float> rope_factors() const {
    if (model_.rope_scaling.type != RopeScalingType::kLlama3) return {};
    const RopeScaling& s = model_.rope_scaling;
    const std::vector<double> plain = rotary_frequencies(rotary_width(model_), model_.rope_theta);
    const std::vector<double> scaled =
        scale_llama3(plain, {s.factor, s.low_freq_factor, s.high_freq_factor,
                             static_cast<double>(s.original_max_position)});
    std::vector<float> factors;
    for (size_t i = 0; i < plain.size(); ++i)
      factors.push_back(static_cast<float>(plain[i] / scaled[i]));
    return factors;
  }

  // Which row of the parameter stands at this place of the file.
  int64_t row_at(int64_t row, RowOrder order) const {
    const int64_t width = model_.head_dim;
    if (order == RowOrder::kPairs) {  // 2 i + j of a head is its row j * width / 2 + i
      const int64_t in_head = row % width;
      return row - in_head + in_head % 2 * (width / 2) + in_head / 2;
    }
    if (order == RowOrder::kHeads) {  // [3, heads, width] of [heads, 3, width]
      const int64_t part = row / (model_.num_heads * width),
                    rest = row % (model_.num_heads * width);
      return (rest / width * 3 + part) * width + rest % width;
    }
    return row;
  }

  void write_tensor(const Parameter& p) {
    const RowOrder order = gguf_name(to_, p.name).second;
    const Shape shape = shape_of(p);
    const int64_t width = shape.size() == 1 ? 1 : shape[1];
    if (order == RowOrder::kSame) {
      const int64_t count = num_elements(shape);
      for (int64_t at = 0; at < count; at += kPieceElements) {
        values_.resize(static_cast<size_t>(std::min(kPieceElements, count - at)));
        read(p.name, at, values_);
        write_values(p);
      }
      return;
    }
    const int64_t rows = std::max<int64_t>(1, kPieceElements / width);
    for (int64_t first = 0; first < shape[0]; first += rows) {
      const int64_t last = std::min(shape[0], first + rows);
      values_.resize(static_cast<size_t>((last - first) * width));
      for (int64_t row = first; row < last; ++row) {
        read(p.name, row_at(row, order) * width,
             std::span(values_).subspan(static_cast<size_t>((row - first) * width),
                                        static_cast<size_t>(width)));
      }
      write_values(p);
    }
  }

  void read(const std::string& name, int64_t first, std::span<float> values) {
    source_.read(name, first, values);
    source_.advise(name, first, std::ssize(values), Advice::kDone);
  }

  void write_values(const Parameter& p) {
    check_interruption();
    convert_weights(p.name, values_, dtype_of(p), bytes_);
    file_.write(bytes_.data(), bytes_.size());
    done_ += std::ssize(bytes_);
    if (options_.progress) options_.progress(done_, total_);
  }

  GgufWriter& file_;
  const ModelConfig& model_;
  const ParameterSource& source_;
  const GgufOptions& options_;
  Architecture to_;
  std::vector<Parameter> parameters_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

void export_gguf(const fs::path& path, const ModelConfig& model, const ParameterSource& source,
                 const GgufOptions& options) {
  const double start = monotonic_seconds();
  if (is_there(path)) throw UserError(cat("'", path.string(), "' is there: give another name"));
  auto tokenizer = load_tokenizer_for(options.tokenizer, model.vocab_size);
  if (model.sliding_window) {
    TESSERA_WARN(
        cat("its window of ", *model.sliding_window,
            " positions is not in the file: llama.cpp lets every token see all before it"));
  }
  if (path.has_parent_path()) make_directories(path.parent_path());
  remove_leftovers_of(path);
  ModelConfig there = model;  // as those programs have it
  if (auto complete = model_family(model.model_type).complete) complete(there);
  const ZerosElsewhere weights(source, build_model(model, 1, 1, ModelHead::kLogits).parameters);
  GgufWriter file(path);
  GgufExport job(file, there, weights, options);
  job.write_sizes(path.stem().string());
  write_gguf_tokenizer(file, options.tokenizer, *tokenizer, options.chat_template,
                       model.vocab_size);
  job.write_tensors();
  const uint64_t bytes = file.commit();
  TESSERA_INFO(cat("Wrote ", path.string(), ": ",
                   format_count(static_cast<double>(parameter_count(model))), " parameters in ",
                   name(options.dtype), ", ", format_bytes(static_cast<int64_t>(bytes)), " in ",
                   format("%.1f", monotonic_seconds() - start), " s"));
}

}  // namespace tessera
