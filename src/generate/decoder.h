#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "hub/parameter_source.h"
#include "programs/programs.h"
#include "runtime/backend.h"

namespace tessera {

struct DecoderOptions {
  int64_t context = 1;  // tokens that the model may see at once
  // What is expected: tokens of the first text, which decides how many one run takes, and of the
  // longest, which decides how many the cache holds.
  int64_t prompt = 1, longest = 1;
  DType compute = DType::kF32;
};

// The begin of the part of a text of `tokens` tokens that a model with this window sees. A text
// that fits is seen whole. Of a longer one the end is seen, and positions count from its first
// token; while the text grows that one stays for a quarter of the window, so that what was computed
// behind it can be kept.
int64_t window_begin(int64_t tokens, int64_t window);

// A model that says what may follow a text. What it computed for the tokens of one call is kept for
// the next: two programs over the same weights and the same cache, one for chunks of a text, one
// for a single token. Results depend on the calls before in their last bits at most.
class Decoder {
 public:
  // `approve` is told the bytes of weights, cache and arena and what load() takes beside them,
  // before they are allocated: it throws where they are too many.
  Decoder(
      const ModelBuilder& model, const DecoderOptions& options, Backend& backend,
      const std::function<void(int64_t planned)>& approve = [](int64_t) {});

  // Weights are kept in the dtype of the options, rounded here.
  void load(const ParameterSource& weights, ThreadPool& pool);

  // Logits f32 [V] of the token behind `ids`, at least one. Valid until the next call.
  std::span<const float> next_logits(std::span<const int32_t> ids);

  // Weights, cache and arena.
  int64_t bytes() const { return state_->bytes() + arenas_->bytes(); }
  // Tokens that are seen at once: the context, or what was said to be the longest text.
  int64_t window() const { return window_; }
  int64_t chunk_length() const { return chunk_.length; }
  // Runs of the programs so far.
  struct Runs {
    int64_t chunks = 0, tokens = 0;
  };
  const Runs& runs() const { return runs_; }

 private:
  struct Program {
    int64_t length = 1;
    NextToken definition;
    std::unique_ptr<Executable> executable;
  };
  std::span<const float> run(Program& program, std::span<const int32_t> tokens, int64_t start);

  DType compute_;
  int64_t window_;
  Program chunk_, token_;
  std::unique_ptr<State> state_;
  std::unique_ptr<Arenas> arenas_;
  std::vector<int32_t> seen_;  // tokens whose keys and values are in the cache
  std::vector<int32_t> padded_;
  std::vector<float> logits_;
  Runs runs_;
};

}  // namespace tessera
