#include "generate/decoder.h"

#include <algorithm>

#include "train/model_weights.h"

namespace tessera {
namespace {

// Elements in f32 that load() rounds at a time.
constexpr int64_t kPart = 1 << 24;

// A chunk is whole blocks of the attention kernel, so that no block is computed in parts. Longer
// chunks read the weights less often, but a prompt that fills the last one less is computed for
// nothing: a short prompt gets a short chunk.
constexpr int64_t kBlock = 64, kLongestChunk = 256;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// `values` as bf16.
void round_to(BF16* to, std::span<const float> values, ThreadPool& pool) {
  constexpr int64_t kTile = 1 << 16;
  auto size = static_cast<int64_t>(values.size());
  pool.run((size + kTile - 1) / kTile, [&](int64_t tile, int) {
    for (int64_t i = tile * kTile; i < std::min(size, (tile + 1) * kTile); ++i)
      to[i] = BF16(values[static_cast<size_t>(i)]);
  });
}

}  // namespace

int64_t window_begin(int64_t tokens, int64_t window) {
  if (tokens <= window) return 0;
  int64_t stay = std::max<int64_t>(1, window / 4);
  return round_up(tokens - window, stay);
}

Decoder::Decoder(const ModelBuilder& model, const DecoderOptions& options,
                 const CompileFunction& compile,
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
    program->executable = compile(program->definition.graph);
  }
  int64_t arena =
      std::max(chunk_.executable->plan().arena_bytes, token_.executable->plan().arena_bytes);
  std::map<std::string, int64_t> slots = chunk_.executable->state_bytes();
  slots.merge(token_.executable->state_bytes());
  int64_t planned = compute_ == DType::kF32 ? arena : checked_add(arena, kPart * 4);
  for (const auto& [slot, bytes] : slots) planned = checked_add(planned, bytes);
  approve(planned);
  arena_ = HostBuffer(arena);
  for (Program* program : {&chunk_, &token_}) program->executable->declare_state(state_);
  for (Program* program : {&chunk_, &token_}) program->executable->bind(state_, arena_);
  padded_.resize(static_cast<size_t>(chunk_.length));
}

void Decoder::load(const ParameterSource& weights, ThreadPool& pool) {
  const NextToken& program = token_.definition;
  seen_.clear();
  if (compute_ == DType::kF32)
    return copy_parameters(weights, weight_targets(program.parameters, program.units, state_),
                           pool);
  TESSERA_CHECK(compute_ == DType::kBF16, name(compute_));
  std::vector<float> part(kPart);
  for (const FlatUnit& unit : program.units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const Parameter& p = program.parameters[static_cast<size_t>(unit.parameters[k])];
      BF16* to = state_.as<BF16>(weight_slot(unit)) + unit.members[k].offset;
      for (int64_t at = 0, size = num_elements(p.shape); at < size; at += std::ssize(part)) {
        auto count = std::min(std::ssize(part), size - at);
        ParameterTarget target{p.name, {{at, count, part.data()}}};
        copy_parameters(weights, {&target, 1}, pool);
        round_to(to + at, std::span(part).first(static_cast<size_t>(count)), pool);
      }
    }
  }
}

std::span<const float> Decoder::run(Program& program, std::span<const int32_t> tokens,
                                    int64_t start) {
  // What stands behind the last token is computed too and seen by nobody: the next run overwrites
  // it.
  std::ranges::copy(tokens, padded_.begin());
  auto first = static_cast<int32_t>(start), last = static_cast<int32_t>(tokens.size()) - 1;
  program.executable->run({{"tokens", padded_.data()}, {"position", &last}, {"start", &first}});
  Value logits = program.definition.graph.outputs()[0].value;
  return {static_cast<const float*>(program.executable->output("logits")),
          static_cast<size_t>(program.definition.graph.type(logits).elements())};
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
