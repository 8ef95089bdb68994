#include "generate/decoder.h"

#include <algorithm>

#include "weights/model_weights.h"

namespace tessera {
namespace {

// Bytes that load() takes at most to round weights: a tile for each thread.
constexpr int64_t kRounding = int64_t{64} << 20;

// A chunk is whole blocks of the attention kernel, so that no block is computed in parts. Longer
// chunks read the weights less often, but a prompt that fills the last one less is computed for
// nothing: a short prompt gets a short chunk.
constexpr int64_t kBlock = 64, kLongestChunk = 256;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

int64_t window_begin(int64_t tokens, int64_t window) {
  if (tokens <= window) return 0;
  int64_t stay = std::max<int64_t>(1, window / 4);
  return round_up(tokens - window, stay);
}

Decoder::Decoder(const ModelBuilder& model, const DecoderOptions& options, Backend& backend,
                 const std::function<void(int64_t planned)>& approve)
    : compute_(options.compute),
      window_(std::min(options.context, round_up(options.longest, kLongestChunk))) {
  TESSERA_CHECK(window_ > 0 && options.prompt > 0);
  chunk_.length = std::min({kLongestChunk, round_up(options.prompt, kBlock), window_});
  for (Program* program : {&chunk_, &token_}) {
    NextTokenOptions next;
    next.length = program->length;
    next.cache = window_;
    next.compute = options.compute;
    next.masters = Masters::kNone;
    program->definition = build_next_token(model, next);
    program->executable = backend.compile(program->definition.graph);
  }
  ProgramMemory memory;
  std::map<std::string, TensorType> slots;
  for (Program* program : {&chunk_, &token_}) {
    ProgramMemory own = program->executable->memory();
    memory.arena = std::max(memory.arena, own.arena);
    memory.far_arena = std::max(memory.far_arena, own.far_arena);
    slots.merge(slot_types(program->executable->graph()));
  }
  int64_t planned = checked_add(memory.arena, memory.far_arena);
  if (compute_ != DType::kF32) planned = checked_add(planned, kRounding);
  for (const auto& [slot, type] : slots) planned = checked_add(planned, type.bytes());
  approve(planned);
  state_ = backend.make_state();
  arenas_ = backend.make_arenas(memory);
  for (Program* program : {&chunk_, &token_}) program->executable->bind(*state_, *arenas_);
  padded_.resize(static_cast<size_t>(chunk_.length));
  const Graph& graph = token_.definition.graph;
  logits_.resize(static_cast<size_t>(graph.type(graph.outputs()[0].value).elements()));
}

void Decoder::load(const ParameterSource& weights, ThreadPool& pool) {
  seen_.clear();
  const NextToken& program = token_.definition;
  copy_parameters(weights, weight_targets(program.parameters, program.units, *state_), pool);
}

std::span<const float> Decoder::run(Program& program, std::span<const int32_t> tokens,
                                    int64_t start) {
  // What stands behind the last token is computed too and seen by nobody: the next run overwrites
  // it.
  std::ranges::copy(tokens, padded_.begin());
  auto first = static_cast<int32_t>(start), last = static_cast<int32_t>(tokens.size()) - 1;
  program.executable->start({{"tokens", padded_.data()}, {"position", &last}, {"start", &first}})
      .read("logits", std::span(logits_));
  return logits_;
}

std::span<const float> Decoder::next_logits(std::span<const int32_t> ids) {
  TESSERA_CHECK(!ids.empty());
  auto text =
      ids.subspan(static_cast<size_t>(window_begin(static_cast<int64_t>(ids.size()), window_)));
  auto known = static_cast<int64_t>(std::ranges::mismatch(text, seen_).in1 - text.begin());
  auto size = static_cast<int64_t>(text.size());
  auto part = [&](int64_t begin, int64_t end) {
    return text.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  seen_.clear();  // should a run fail
  std::span<const float> logits;
  if (known >= size - 1) {
    logits = run(token_, part(size - 1, size), size - 1);
    ++runs_.tokens;
  } else {
    const int64_t length = chunk_.length;
    for (int64_t at = known / length * length; at < size; at += length) {
      int64_t begin = std::min(at, window_ - length);  // no chunk reaches beyond the cache
      logits = run(chunk_, part(begin, std::min(size, begin + length)), begin);
      ++runs_.chunks;
    }
  }
  seen_.assign(text.begin(), text.end());
  return logits;
}

}  // namespace tessera
