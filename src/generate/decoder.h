#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "hub/parameter_source.h"
#include "programs/programs.h"
#include "runtime/backend.h"

namespace tessera {

struct DecoderOptions {
  int64_t context = 1;  // tokens that the model may see at once
  // What is expected: tokens of the texts to begin with, which decide how many one run takes, and
  // of the longest, which decides how many a row of the cache holds.
  std::vector<int64_t> prompts = {1};
  int64_t longest = 1;
  int64_t rows = 1;  // texts at once
  DType compute = DType::kF32;
};

// The begin of the part of a text of `tokens` tokens that a model with this window sees. A text
// that fits is seen whole. Of a longer one the end is seen, and positions count from its first
// token; while the text grows that one stays for a quarter of the window, so that what was computed
// behind it can be kept.
int64_t window_begin(int64_t tokens, int64_t window);

// The programs of a decoder over the same weights and the same cache, and what they need: chunks of
// one text, of the lengths that its texts take, and single tokens of 1, 2, 4 ... texts.
class DecoderPrograms {
 public:
  DecoderPrograms(const ModelBuilder& model, const DecoderOptions& options, Backend& backend);

  // Bytes of weights, cache, arena and logits and of what load() takes beside them. Nothing of it
  // is allocated yet.
  int64_t planned() const { return planned_; }

 private:
  friend class Decoder;
  struct Program {
    int64_t batch = 1, length = 1;
    NextToken definition;
    std::unique_ptr<Executable> executable;
  };
  void add(const ModelBuilder& model, Backend& backend, int64_t batch, int64_t length,
           std::vector<Program>& to);

  DecoderOptions options_;
  int64_t window_;
  std::vector<Program> chunks_, steps_;  // by ascending length, and batch
  ProgramMemory memory_;
  int64_t planned_ = 0, vocabulary_ = 0;
};

// A model that says what may follow a text, for several texts at once, each in a row of the cache.
// What was computed for the tokens of one call is kept for the next.
//
// Of the calls for a text from forget() or the beginning on, results are a function of what that
// text was at each of them: neither other rows nor the number of rows have any influence on a bit,
// as long as at most 16 texts take a step together (backends/cpu/kernels/matmul_rows.h); with more,
// last bits may differ.
class Decoder {
 public:
  Decoder(DecoderPrograms programs, Backend& backend);

  // Weights are kept in the dtype of the options, rounded here.
  void load(const ParameterSource& weights, ThreadPool& pool);

  struct Text {
    int64_t row = 0;
    std::span<const int32_t> ids;  // at least one
  };
  // Of each text the logits f32 [V] of the token behind it; rows are all different. Texts that lack
  // one token only take one step together, others their chunks one after another. Valid until the
  // next call.
  std::span<const std::span<const float>> next_logits(std::span<const Text> texts);
  std::span<const float> next_logits(std::span<const int32_t> ids, int64_t row = 0);

  // Nothing of what was computed in a row is used again.
  void forget(int64_t row) { rows_[static_cast<size_t>(row)].clear(); }

  // Weights, cache and arena.
  int64_t bytes() const { return state_->bytes() + arenas_->bytes(); }
  int64_t rows() const { return std::ssize(rows_); }
  // Tokens that are seen at once: the context, or what was said to be the longest text.
  int64_t window() const { return programs_.window_; }
  // Tokens of a chunk of a text of so many.
  int64_t chunk_length(int64_t tokens) const;
  // Runs of the programs so far.
  struct Runs {
    int64_t chunks = 0, steps = 0;
  };
  const Runs& runs() const { return runs_; }

 private:
  using Program = DecoderPrograms::Program;
  const Program& chunk_for(int64_t tokens) const;
  std::span<const int32_t> visible(const Text& text) const;
  size_t known(const Text& text) const;
  void run(const Program& program, std::span<float> logits);
  void take_step(std::span<const Text> texts);
  void take_chunks(const Text& text, std::span<float> logits);

  DecoderPrograms programs_;
  std::unique_ptr<State> state_;
  std::unique_ptr<Arenas> arenas_;
  // Of each row of the cache the tokens whose keys and values are in it.
  std::vector<std::vector<int32_t>> rows_;
  // What a run takes, and where.
  std::vector<int32_t> tokens_, position_, start_, row_;
  Arguments arguments_;
  std::vector<float> logits_;  // [rows, V]
  std::vector<std::span<const float>> results_;
  // Of a call: the texts that take a step, and what each row is to it.
  std::vector<size_t> step_;
  enum class Use : char { kNone, kChunks, kStep };
  std::vector<Use> uses_;
  Runs runs_;
};

}  // namespace tessera
