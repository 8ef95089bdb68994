#include "hub/pretrained_weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/element_types.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

// Of two tensors of one type and shape, whether they have the same bits.
bool equal_elements(const StoredTensor& a, const StoredTensor& b) {
  if (!a.dtype || !is_weight_dtype(*a.dtype)) return false;
  // PyTorch stores what two names share once.
  if (a.pieces.size() == 1 && b.pieces.size() == 1 &&
      a.pieces[0].bytes.data() == b.pieces[0].bytes.data() &&
      a.pieces[0].strides == b.pieces[0].strides)
    return true;
  constexpr int64_t kElementsAtOnce = int64_t{1} << 22;
  const int64_t count = num_elements(a.shape);
  std::vector<float> of_a, of_b;
  for (int64_t at = 0; at < count; at += kElementsAtOnce) {
    const int64_t n = std::min(kElementsAtOnce, count - at);
    of_a.resize(static_cast<size_t>(n));
    of_b.resize(static_cast<size_t>(n));
    a.read(at, of_a);
    b.read(at, of_b);
    if (std::memcmp(of_a.data(), of_b.data(), of_a.size() * sizeof(float)) != 0) return false;
    a.advise(at, n, Advice::kDone);
    b.advise(at, n, Advice::kDone);
  }
  return true;
}

}  // namespace

PretrainedWeights::PretrainedWeights(const std::filesystem::path& path, const FamilyNames& family,
                                     std::span<const FileTensor> tensors)
    : files_(path), family_(family) {
  bare_ = std::ranges::none_of(files_.tensors(), [&](const auto& tensor) {
    return tensor.first.starts_with(family_.prefix);
  });
  check_all_there(tensors);
  for (const FileTensor& t : tensors) entries_[t.name] = entry_of(t);
  check_tied_head(tensors);
}

std::string_view PretrainedWeights::head_in_files() const {
  const bool other = !family_.head_in_memory.empty() && !files_.find(family_.head);
  return other && files_.find(family_.head_in_memory) ? family_.head_in_memory : family_.head;
}

std::string PretrainedWeights::name_in_files(const std::string& parameter) const {
  if (parameter == family_.head) return std::string(head_in_files());
  bool cut = bare_ && parameter.starts_with(family_.prefix);
  return cut ? parameter.substr(family_.prefix.size()) : parameter;
}

void PretrainedWeights::check_all_there(std::span<const FileTensor> tensors) const {
  std::vector<std::string> missing, extra;
  std::set<std::string> known;
  for (const FileTensor& t : tensors) {
    std::string name = name_in_files(t.name);
    if (!files_.find(name)) missing.push_back(cat(name, " ", to_string(t.shape)));
    known.insert(std::move(name));
  }
  known.insert(std::string(head_in_files()));  // of a tied model: compared later
  for (const auto& [name, stored] : files_.tensors()) {
    bool buffer = std::ranges::any_of(
        family_.buffers, [&name = name](std::string_view end) { return name.ends_with(end); });
    if (known.contains(name) || buffer) continue;
    extra.push_back(stored.dtype ? cat(name, " ", to_string(stored.shape)) : name);
  }
  if (missing.empty() && extra.empty()) return;
  std::string lacks = missing.empty()
                          ? ""
                          : cat(missing.size(), missing.size() == 1 ? " tensor is" : " tensors are",
                                " missing: ", some_of(missing));
  std::string has = extra.empty()
                        ? ""
                        : cat(extra.size(), extra.size() == 1 ? " tensor is" : " tensors are",
                              " not part of the model: ", some_of(extra));
  throw UserError(cat("the weights in '", files_.path().string(), "' do not fit this ",
                      family_.model_type, " model: ", lacks,
                      lacks.empty() || has.empty() ? "" : "; ", has,
                      "; is its configuration that of these weights?"));
}

PretrainedWeights::Entry PretrainedWeights::entry_of(const FileTensor& tensor) const {
  std::string name = name_in_files(tensor.name);
  const StoredTensor& stored = *files_.find(name);
  if (stored.shape != tensor.shape || !stored.dtype || !is_weight_dtype(*stored.dtype)) {
    throw UserError(cat("tensor '", name, "' in '", stored.path.string(), "' is ",
                        stored.to_string(), ", the model needs f32, bf16 or f16 ",
                        to_string(tensor.shape)));
  }
  Entry entry{stored};
  if (tensor.transposed) {
    entry.rows = tensor.shape[1];
    entry.columns = tensor.shape[0];
  }
  return entry;
}

// A model with one matrix for both ends can have been saved with two that are equal.
void PretrainedWeights::check_tied_head(std::span<const FileTensor> tensors) const {
  const StoredTensor* head = files_.find(head_in_files());
  if (!head || std::ranges::find(tensors, family_.head, &FileTensor::name) != tensors.end()) return;
  const StoredTensor& embedding = find(family_.embedding).stored;
  if (head->dtype == embedding.dtype && head->shape == embedding.shape &&
      equal_elements(*head, embedding))
    return;
  throw UserError(cat("tensor '", head_in_files(), "' in '", head->path.string(),
                      "' differs from the embedding, but the model has one matrix for both; for a "
                      "model with two, its config.json must say \"tie_word_embeddings\": false"));
}

const PretrainedWeights::Entry& PretrainedWeights::find(std::string_view parameter) const {
  auto entry = entries_.find(parameter);
  TESSERA_CHECK(entry != entries_.end(), cat("no weights were fitted for '", parameter, "'"));
  return entry->second;
}

void PretrainedWeights::read(std::string_view parameter, int64_t first,
                             std::span<float> values) const {
  const Entry& entry = find(parameter);
  if (entry.columns == 0) return entry.stored.read(first, values);
  // Row r of the parameter is column r of what is stored: a few rows at once, so that neighbours in
  // the file are read together.
  constexpr int64_t kRows = 64;
  const int64_t last = first + static_cast<int64_t>(values.size());
  TESSERA_CHECK(first >= 0 && last <= entry.rows * entry.columns);
  for (int64_t top = first / entry.columns; top * entry.columns < last; top += kRows) {
    int64_t bottom = std::min(top + kRows, entry.rows);
    float column[kRows];
    for (int64_t c = 0; c < entry.columns; ++c) {
      entry.stored.read(c * entry.rows + top, {column, static_cast<size_t>(bottom - top)});
      for (int64_t r = top; r < bottom; ++r) {
        int64_t element = r * entry.columns + c;
        if (element >= first && element < last)
          values[static_cast<size_t>(element - first)] = column[r - top];
      }
    }
  }
}

void PretrainedWeights::advise(std::string_view parameter, int64_t first, int64_t count,
                               Advice advice) const {
  const Entry& entry = find(parameter);
  if (entry.columns == 0) return entry.stored.advise(first, count, advice);
  // A few rows of a transposed matrix are spread over all of it.
  entry.stored.advise(0, entry.rows * entry.columns, advice);
}

}  // namespace tessera
