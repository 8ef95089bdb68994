#include "hub/meta_llama.h"

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kParams = "params.json";
constexpr uintmax_t kMaxParamsBytes = 1 << 20;

// How a tensor is cut over the parts.
enum class Cut { kNone, kRows, kColumns, kEmbedding };

struct MetaTensor {
  std::string_view meta, ours;
  Cut cut = Cut::kNone;
  bool rotates = false;
};

constexpr std::array<MetaTensor, 3> kOfModel{{
    {"tok_embeddings.weight", "model.embed_tokens.weight", Cut::kEmbedding},
    {"norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight", Cut::kRows},
}};
// Behind "layers.N.".
constexpr std::array<MetaTensor, 9> kOfLayer{{
    {"attention.wq.weight", "self_attn.q_proj.weight", Cut::kRows, true},
    {"attention.wk.weight", "self_attn.k_proj.weight", Cut::kRows, true},
    {"attention.wv.weight", "self_attn.v_proj.weight", Cut::kRows},
    {"attention.wo.weight", "self_attn.o_proj.weight", Cut::kColumns},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight", Cut::kRows},
    {"feed_forward.w2.weight", "mlp.down_proj.weight", Cut::kColumns},
    {"feed_forward.w3.weight", "mlp.up_proj.weight", Cut::kRows},
    {"attention_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
}};

fs::path part_path(const fs::path& directory, int part) {
  return directory / format("consolidated.%02d.pth", part);
}

// "layers.7.attention.wq.weight" under our name, and what is known of it. Others keep their name.
std::pair<std::string, MetaTensor> known_tensor(const std::string& name) {
  for (const MetaTensor& tensor : kOfModel) {
    if (tensor.meta == name) return {std::string(tensor.ours), tensor};
  }
  constexpr std::string_view kLayers = "layers.";
  const size_t dot = name.find('.', kLayers.size());
  if (name.starts_with(kLayers) && dot != name.npos) {
    for (const MetaTensor& tensor : kOfLayer) {
      if (std::string_view(name).substr(dot + 1) == tensor.meta)
        return {cat("model.", name.substr(0, dot + 1), tensor.ours), tensor};
    }
  }
  return {name, {}};
}

// The parts of one tensor.
class PartJoiner {
 public:
  PartJoiner(std::span<const fs::path> paths, std::span<const std::unique_ptr<TorchFile>> parts,
             int64_t width, int64_t head_dim)
      : paths_(paths), parts_(parts), width_(width), head_dim_(head_dim) {}

  StoredTensor join(const TorchTensor& first, const MetaTensor& about) const {
    StoredTensor joined = stored_tensor(*parts_[0], paths_[0], first);
    if (about.rotates) interleave(joined.pieces[0], first);
    const auto count = static_cast<int64_t>(parts_.size());
    if (count == 1 || about.cut == Cut::kNone) return joined;
    if (first.shape.size() != 2) fail(first, cat("is ", joined.to_string(), ", not a matrix"));
    for (size_t i = 1; i < parts_.size(); ++i) {
      const TorchTensor* other = parts_[i]->archive().find(first.name);
      if (!other || other->shape != first.shape || other->element_type != first.element_type) {
        fail(first, cat("is ", joined.to_string(), ", in '", paths_[i].string(), "' ",
                        other ? "it differs" : "it is missing"));
      }
      joined.pieces.push_back(stored_piece(*parts_[i], *other));
      if (about.rotates) interleave(joined.pieces.back(), first);
    }
    Cut cut = about.cut;
    // Before Llama 3 every part has some columns of the embedding, since then some rows.
    if (cut == Cut::kEmbedding) cut = first.shape[1] == width_ ? Cut::kRows : Cut::kColumns;
    joined.shape[cut == Cut::kRows ? 0 : 1] *= count;
    joined.run = cut == Cut::kRows ? num_elements(first.shape) : first.shape[1];
    if (about.rotates && about.meta == kOfLayer[0].meta && joined.shape[0] != width_) {
      fail(first, cat("has ", first.shape[0], " rows in each of ", count, " parts, not ", width_,
                      " in all, as its ", kParams, " says: is a part missing?"));
    }
    return joined;
  }

 private:
  [[noreturn]] void fail(const TorchTensor& tensor, std::string_view reason) const {
    throw UserError(cat("tensor '", tensor.name, "' in '", paths_[0].string(), "' ", reason));
  }

  // Row 2 i + j of a head becomes row j * head_dim / 2 + i.
  void interleave(StoredPiece& piece, const TorchTensor& tensor) const {
    if (tensor.shape.size() != 2 || tensor.shape[0] % head_dim_ != 0)
      fail(tensor, cat("of ", to_string(tensor.shape), " has not whole heads of ", head_dim_));
    const int64_t row = tensor.strides[0];
    piece.shape = {tensor.shape[0] / head_dim_, 2, head_dim_ / 2, tensor.shape[1]};
    piece.strides = {row * head_dim_, row, row * 2, tensor.strides[1]};
  }

  std::span<const fs::path> paths_;
  std::span<const std::unique_ptr<TorchFile>> parts_;
  int64_t width_, head_dim_;
};

struct HeadShape {
  int64_t width, head_dim;
};

HeadShape read_params(const fs::path& path) {
  std::error_code ignored;
  if (!is_file(path) || fs::file_size(path, ignored) > kMaxParamsBytes) {
    throw UserError(cat("'", path.string(),
                        "' is missing or too large: it says how many heads the ",
                        "weights beside it have"));
  }
  auto json = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  auto number = [&](const char* key) {
    auto found = json.is_object() ? json.find(key) : json.end();
    bool right = json.is_object() && found != json.end() && found->is_number_integer() &&
                 *found > 0 && *found < int64_t{1} << 32;
    if (!right) throw UserError(cat("'", path.string(), "': '", key, "' must be a number above 0"));
    return found->get<int64_t>();
  };
  const int64_t width = number("dim"), heads = number("n_heads");
  if (width % heads != 0 || width / heads % 2 != 0) {
    throw UserError(
        cat("'", path.string(), "': ", heads, " heads of an even width do not make up ", width));
  }
  return {width, width / heads};
}

}  // namespace

std::optional<MetaName> meta_name_of(std::string_view parameter, MetaForm form) {
  const bool titan = form == MetaForm::kTorchtitan;
  for (const MetaTensor& tensor : kOfModel) {
    const bool keeps = titan && tensor.ours == "lm_head.weight";
    if (tensor.ours == parameter) return MetaName{std::string(keeps ? tensor.ours : tensor.meta)};
  }
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = parameter.find('.', kLayers.size());
  if (!parameter.starts_with(kLayers) || dot == parameter.npos) return {};
  for (const MetaTensor& tensor : kOfLayer) {
    if (parameter.substr(dot + 1) != tensor.ours) continue;
    constexpr size_t kModel = std::string_view("model.").size();
    std::string name(tensor.meta);
    constexpr std::string_view kAttention = "attention.";
    const bool output = tensor.ours == "self_attn.o_proj.weight";
    if (titan && !output && name.starts_with(kAttention))
      name.insert(kAttention.size(), "qkv_linear.");
    return MetaName{cat(parameter.substr(kModel, dot + 1 - kModel), name), tensor.rotates};
  }
  return {};
}

bool is_meta_llama(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return is_file(part_path(path, 0));
  return path.filename() == part_path("", 0).filename();
}

std::vector<fs::path> meta_llama_parts(const fs::path& directory) {
  std::vector<fs::path> paths;
  while (is_file(part_path(directory, static_cast<int>(paths.size()))))
    paths.push_back(part_path(directory, static_cast<int>(paths.size())));
  return paths;
}

std::vector<std::pair<std::string, StoredTensor>> meta_llama_tensors(
    const fs::path& directory, std::span<const fs::path> paths,
    std::span<const std::unique_ptr<TorchFile>> parts) {
  const HeadShape heads = read_params(directory / kParams);
  const PartJoiner joiner(paths, parts, heads.width, heads.head_dim);
  std::vector<std::pair<std::string, StoredTensor>> tensors;
  for (const TorchTensor& tensor : parts[0]->archive().tensors()) {
    if (tensor.name.ends_with("rope.freqs")) continue;
    auto [name, about] = known_tensor(tensor.name);
    tensors.emplace_back(std::move(name), joiner.join(tensor, about));
  }
  return tensors;
}

}  // namespace tessera
