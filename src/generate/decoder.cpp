#include "generate/decoder.h"

#include <algorithm>

namespace tessera {
namespace {

// A chunk is whole blocks of the attention kernel, so that no block is computed in parts. Longer
// chunks read the weights less often, but a prompt that fills the last one less is computed for
// nothing: a short prompt gets a short chunk.
constexpr int64_t kBlock = 64, kLongestChunk = 256;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// `values` as elements of the dtype.
void store(std::span<const float> values, DType dtype, std::byte* to, ThreadPool& pool) {
  TESSERA_CHECK(dtype == DType::kBF16, name(dtype));
  constexpr int64_t kTile = 1 << 16;
  auto size = static_cast<int64_t>(values.size());
  auto* rounded = reinterpret_cast<BF16*>(to);
  pool.run((size + kTile - 1) / kTile, [&](int64_t tile, int) {
    for (int64_t i = tile * kTile; i < std::min(size, (tile + 1) * kTile); ++i)
      rounded[i] = BF16(values[static_cast<size_t>(i)]);
  });
}

}  // namespace

int64_t window_begin(int64_t tokens, int64_t window) {
  if (tokens <= window) return 0;
  int64_t stay = std::max<int64_t>(1, window / 4);
  return round_up(tokens - window, stay);
}

Decoder::Decoder(const ModelBuilder& model, const DecoderOptions& options,
                 const CompileFunction& compile)
    : window_(std::min(options.context, round_up(options.longest, kLongestChunk))) {
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
    program->executable->declare_state(state_);
  }
  arena_ = HostBuffer(
      std::max(chunk_.executable->plan().arena_bytes, token_.executable->plan().arena_bytes));
  for (Program* program : {&chunk_, &token_}) program->executable->bind(state_, arena_);
  padded_.resize(static_cast<size_t>(chunk_.length));
}

void Decoder::load(const ReadParameter& read, ThreadPool& pool) {
  const NextToken& definition = token_.definition;
  std::vector<float> values;
  for (const FlatUnit& unit : definition.units) {
    const std::string slot = weight_slot(unit);
    DType dtype = state_.type(slot).dtype;
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const Parameter& p = definition.parameters[static_cast<size_t>(unit.parameters[k])];
      auto count = static_cast<size_t>(num_elements(p.shape));
      std::byte* to = state_.as<std::byte>(slot) + unit.members[k].offset * size_of(dtype);
      if (dtype == DType::kF32) {
        read(p.name, p.shape, {reinterpret_cast<float*>(to), count});
        continue;
      }
      values.resize(count);
      read(p.name, p.shape, values);
      store(values, dtype, to, pool);
    }
  }
  seen_.clear();
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
