#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "apps/cpu_device.h"
#include "base/random.h"
#include "train/run_record.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera generate CHECKPOINT [OPTIONS]

Continues a text with a trained model. CHECKPOINT is a checkpoint, or a directory of them (the newest is taken).
The tokenizer of the training run is used unless --tokenizer is given.

Examples
  tessera generate checkpoints --prompt "A horse is"
  tessera generate checkpoints --prompt "A horse is" --temperature 0 --max_new_tokens 40
  tessera generate checkpoints/llama_v2-700steps --top_k 50 --seed 7

Options
)";

// The next token by (seed, position): temperature 0 takes the most likely, ties to the lower id.
int32_t sample(std::span<const float> logits, const RunConfig& config, uint64_t index) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto larger = [&](int32_t a, int32_t b) {
    float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  auto kept = static_cast<size_t>(config.top_k.value_or(static_cast<int64_t>(order.size())));
  kept = std::clamp<size_t>(config.temperature == 0 ? 1 : kept, 1, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                    larger);
  std::vector<double> weights;
  double sum = 0;
  for (size_t i = 0; i < kept && kept > 1; ++i) {
    double difference =
        logits[static_cast<size_t>(order[i])] - logits[static_cast<size_t>(order[0])];
    weights.push_back(std::exp(difference / config.temperature));
    sum += weights.back();
  }
  double draw =
      random_uniform(static_cast<uint64_t>(config.seed), stream_of("generate"), index) * sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    draw -= weights[i];
    if (draw < 0) return order[i];
  }
  return order[0];
}

}  // namespace

int generate_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kGenerate);
  if (parsed.help) {
    std::printf("%s%s", kHelp, option_help(OptionScope::kGenerate).c_str());
    return 0;
  }
  if (parsed.words.size() != 1)
    throw UsageError(
        "generate takes one checkpoint, or a directory of them: tessera generate CHECKPOINT "
        "--prompt TEXT");
  const RunConfig& config = parsed.config;
  auto found = newest_complete_checkpoint(parsed.words[0]);
  if (!found) throw UserError(cat("there is no complete checkpoint in '", parsed.words[0], "'"));
  CheckpointReader reader(*found);
  RunRecord record = run_record_from_json(reader.run_json(), (*found / kRunName).string());
  auto tokenizer =
      load_tokenizer(parsed.is_given("tokenizer") ? config.tokenizer : record.options.tokenizer);

  if (tokenizer->vocab_size() > record.model.vocab_size) {
    throw UserError(cat("the tokenizer has ", tokenizer->vocab_size(),
                        " ids, the model's vocabulary only ", record.model.vocab_size,
                        ": give --tokenizer the one that it was trained with"));
  }
  log_messages(parsed);

  auto backend = open_cpu(config);
  int64_t length = record.options.max_context_width;
  bool bf16 = parsed.is_given("bf16") ? config.bf16 : record.options.bf16;
  DType compute = bf16 ? DType::kBF16 : DType::kF32;
  ModelBuilder builder = model_builder(record.model);
  NextToken program = build_next_token(builder, length, compute, {});
  auto executable = backend->compile(program.graph);
  State state;
  executable->declare_state(state);
  HostBuffer arena(executable->plan().arena_bytes);
  executable->bind(state, arena);
  std::vector<TensorBuffer> buffers;
  for (const FlatUnit& unit : program.units) {
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const Parameter& p = program.parameters[static_cast<size_t>(unit.parameters[k])];
      buffers.push_back({p.name, DType::kF32, p.shape,
                         state.as<float>(weight_slot(unit)) + unit.members[k].offset});
    }
  }
  reader.load_some(buffers);

  std::vector<int32_t> ids{tokenizer->end_of_text()};  // documents begin behind one
  tokenizer->encode(config.prompt, ids);
  std::fputs(config.prompt.c_str(), stdout);
  std::vector<int32_t> window(static_cast<size_t>(length), tokenizer->end_of_text());
  for (int64_t i = 0; i < config.max_new_tokens; ++i) {
    size_t used = std::min(ids.size(), window.size());
    std::copy(ids.end() - static_cast<std::ptrdiff_t>(used), ids.end(), window.begin());
    auto position = static_cast<int32_t>(used) - 1;
    executable->run({{"tokens", window.data()}, {"position", &position}});
    // Rows beyond the tokenizer's ids stand for nothing.
    std::span logits(static_cast<const float*>(executable->output("logits")),
                     static_cast<size_t>(tokenizer->vocab_size()));
    if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); })) {
      throw UserError(
          cat("the model's outputs are not finite: its training diverged; use a checkpoint before ",
              found->string()));
    }
    int32_t next = sample(logits, config, static_cast<uint64_t>(i));
    if (next == tokenizer->end_of_text()) break;
    ids.push_back(next);
    std::string_view bytes = tokenizer->token_bytes(next);
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    std::fflush(stdout);
  }
  std::fputs("\n", stdout);
  return 0;
}

}  // namespace tessera
