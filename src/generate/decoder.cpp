#include "generate/decoder.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/round_up.h"
#include "weights/model_weights.h"

namespace tessera {
namespace {

// Bytes that load() takes at most to round weights: a tile for each thread.
constexpr int64_t kRounding = int64_t{64} << 20;

// A chunk is whole blocks of the attention kernel, so that no block is computed in parts. Longer
// chunks read the weights less often, but a prompt that fills the last one less is computed for
// nothing: a short prompt gets a short chunk.
constexpr int64_t kBlock = 64, kLongestChunk = 256;

int64_t best_chunk(int64_t tokens, int64_t window) {
  return std::min({kLongestChunk, round_up(tokens, kBlock), window});
}

}  // namespace

int64_t window_begin(int64_t tokens, int64_t window) {
  if (tokens <= window) return 0;
  int64_t stay = std::max<int64_t>(1, window / 4);
  return round_up(tokens - window, stay);
}

DecoderPrograms::DecoderPrograms(const ModelBuilder& model, const DecoderOptions& options,
                                 Backend& backend)
    : options_(options),
      window_(std::min(options.context, round_up(options.longest, kLongestChunk))) {
  TESSERA_CHECK(window_ > 0 && options.rows > 0 && !options.prompts.empty());
  std::set<int64_t> lengths;
  for (int64_t tokens : options.prompts)
    lengths.insert(best_chunk(tokens - window_begin(tokens, window_), window_));
  // Where a text outgrows the window, what is left of it is computed again.
  if (options.longest > window_)
    lengths.insert(best_chunk(window_ + 1 - window_begin(window_ + 1, window_), window_));
  for (int64_t length : lengths) add(model, backend, 1, length, chunks_);
  for (int64_t batch = 1; batch < options.rows; batch *= 2) add(model, backend, batch, 1, steps_);
  add(model, backend, options.rows, 1, steps_);

  std::map<std::string, TensorType> slots;
  for (const auto* programs : {&chunks_, &steps_}) {
    for (const Program& program : *programs) {
      ProgramMemory own = program.executable->memory();
      memory_.arena = std::max(memory_.arena, own.arena);
      memory_.far_arena = std::max(memory_.far_arena, own.far_arena);
      slots.merge(slot_types(program.executable->graph()));
    }
  }
  const Graph& graph = steps_.front().definition.graph;
  vocabulary_ = graph.type(graph.outputs()[0].value).shape[1];
  planned_ = checked_add(memory_.arena, memory_.far_arena);
  if (options_.compute != DType::kF32) planned_ = checked_add(planned_, kRounding);
  for (const auto& [slot, type] : slots) planned_ = checked_add(planned_, type.bytes());
  planned_ = checked_add(planned_, TensorType{{options_.rows, vocabulary_}, DType::kF32}.bytes());
}

void DecoderPrograms::add(const ModelBuilder& model, Backend& backend, int64_t batch,
                          int64_t length, std::vector<Program>& to) {
  NextTokenOptions next;
  next.length = length;
  next.batch = batch;
  next.cache = window_;
  next.rows = options_.rows;
  next.compute = options_.compute;
  next.masters = Masters::kNone;
  Program program{batch, length, build_next_token(model, next), nullptr};
  program.executable = backend.compile(program.definition.graph);
  to.push_back(std::move(program));
}

Decoder::Decoder(DecoderPrograms programs, Backend& backend)
    : programs_(std::move(programs)),
      state_(backend.make_state()),
      arenas_(backend.make_arenas(programs_.memory_)) {
  for (auto* list : {&programs_.chunks_, &programs_.steps_})
    for (Program& program : *list) program.executable->bind(*state_, *arenas_);
  const auto rows = static_cast<size_t>(programs_.options_.rows);
  rows_.resize(rows);
  for (auto& row : rows_) row.reserve(static_cast<size_t>(window()));
  for (auto* each : {&position_, &start_, &row_}) each->resize(rows);
  tokens_.resize(std::max(rows, static_cast<size_t>(programs_.chunks_.back().length)));
  arguments_ = {{"tokens", tokens_.data()},
                {"position", position_.data()},
                {"start", start_.data()},
                {"row", row_.data()}};
  logits_.resize(rows * static_cast<size_t>(programs_.vocabulary_));
  results_.reserve(rows);
  step_.reserve(rows);
  uses_.resize(rows);
}

void Decoder::load(const ParameterSource& weights, ThreadPool& pool) {
  for (auto& row : rows_) row.clear();
  const NextToken& program = programs_.steps_.front().definition;
  copy_parameters(weights, weight_targets(program.parameters, program.units, *state_), pool);
}

const Decoder::Program& Decoder::chunk_for(int64_t tokens) const {
  const auto& chunks = programs_.chunks_;
  int64_t wanted = best_chunk(tokens, window());
  auto found = std::ranges::find_if(chunks, [&](const Program& p) { return p.length >= wanted; });
  return found == chunks.end() ? chunks.back() : *found;
}

int64_t Decoder::chunk_length(int64_t tokens) const { return chunk_for(tokens).length; }

std::span<const int32_t> Decoder::visible(const Text& text) const {
  return text.ids.subspan(static_cast<size_t>(window_begin(std::ssize(text.ids), window())));
}

// Tokens of what is visible whose keys and values are in the cache.
size_t Decoder::known(const Text& text) const {
  std::span<const int32_t> ids = visible(text);
  return static_cast<size_t>(std::ranges::mismatch(ids, rows_[static_cast<size_t>(text.row)]).in1 -
                             ids.begin());
}

void Decoder::run(const Program& program, std::span<float> logits) {
  program.executable->start(arguments_).read("logits", logits);
}

// The last token of each of step_.
void Decoder::take_step(std::span<const Text> texts) {
  const auto& steps = programs_.steps_;
  auto count = std::ssize(step_);
  const Program& program =
      *std::ranges::find_if(steps, [&](const Program& p) { return p.batch >= count; });
  size_t b = 0;
  for (; b < step_.size(); ++b) {
    const Text& text = texts[step_[b]];
    tokens_[b] = text.ids.back();
    start_[b] = static_cast<int32_t>(visible(text).size()) - 1;
    row_[b] = static_cast<int32_t>(text.row);
  }
  // What is left of the program writes behind what other rows hold, where nobody looks.
  for (size_t row = 0; b < static_cast<size_t>(program.batch); ++row) {
    if (uses_[row] == Use::kStep) continue;
    if (std::ssize(rows_[row]) == window()) rows_[row].pop_back();
    tokens_[b] = 0;
    start_[b] = static_cast<int32_t>(rows_[row].size());
    row_[b++] = static_cast<int32_t>(row);
  }
  std::iota(position_.begin(), position_.end(), 0);
  auto width = static_cast<size_t>(programs_.vocabulary_);
  run(program, std::span(logits_).first(static_cast<size_t>(program.batch) * width));
  ++runs_.steps;
  for (b = 0; b < step_.size(); ++b) {
    const Text& text = texts[step_[b]];
    auto& row = rows_[static_cast<size_t>(text.row)];
    row.resize(visible(text).size() - 1);
    row.push_back(text.ids.back());
    results_[step_[b]] = std::span(logits_).subspan(b * width, width);
  }
}

void Decoder::take_chunks(const Text& text, std::span<float> logits) {
  std::span<const int32_t> ids = visible(text);
  auto size = std::ssize(ids), done = static_cast<int64_t>(known(text));
  auto& row = rows_[static_cast<size_t>(text.row)];
  row.clear();  // should a run fail
  const Program& program = chunk_for(size);
  const int64_t length = program.length;
  for (int64_t at = done / length * length; at < size; at += length) {
    int64_t begin = std::min(at, window() - length);  // no chunk reaches beyond the cache
    int64_t tokens = std::min(size - begin, length);
    // What stands behind the last token is computed too and seen by nobody: the next run overwrites
    // it.
    std::ranges::copy(ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(tokens)),
                      tokens_.begin());
    position_[0] = static_cast<int32_t>(tokens) - 1;
    start_[0] = static_cast<int32_t>(begin);
    row_[0] = static_cast<int32_t>(text.row);
    run(program, logits);
    ++runs_.chunks;
  }
  row.assign(ids.begin(), ids.end());
}

std::span<const std::span<const float>> Decoder::next_logits(std::span<const Text> texts) {
  step_.clear();
  std::ranges::fill(uses_, Use::kNone);
  for (size_t i = 0; i < texts.size(); ++i) {
    const Text& text = texts[i];
    TESSERA_CHECK(!text.ids.empty() && text.row >= 0 && text.row < rows());
    Use& use = uses_[static_cast<size_t>(text.row)];
    TESSERA_CHECK(use == Use::kNone, "two texts in one row");
    use = known(text) + 1 >= visible(text).size() ? Use::kStep : Use::kChunks;
    if (use == Use::kStep) step_.push_back(i);
  }
  results_.resize(texts.size());
  if (!step_.empty()) take_step(texts);
  auto width = static_cast<size_t>(programs_.vocabulary_);
  size_t place = step_.size() * width;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (uses_[static_cast<size_t>(texts[i].row)] != Use::kChunks) continue;
    std::span<float> logits = std::span(logits_).subspan(place, width);
    take_chunks(texts[i], logits);
    results_[i] = logits;
    place += width;
  }
  return results_;
}

std::span<const float> Decoder::next_logits(std::span<const int32_t> ids, int64_t row) {
  const Text text{row, ids};
  return next_logits({&text, 1})[0];
}

}  // namespace tessera
