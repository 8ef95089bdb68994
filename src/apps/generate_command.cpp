#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "apps/command_options.h"
#include "apps/commands.h"
#include "apps/cpu_device.h"
#include "apps/text_input.h"
#include "base/clock.h"
#include "base/log.h"
#include "generate/decoder.h"
#include "generate/sampler.h"
#include "generate/text_output.h"
#include "generate/trained_model.h"
#include "models/build_model.h"
#include "planning/host_memory.h"

namespace tessera {
namespace {

constexpr const char* kHelp = R"(Usage: tessera generate MODEL [OPTIONS]

Continues a text with a trained model. MODEL is a checkpoint of any number of ranks, a directory of checkpoints
(the newest is taken), the directory of a Hugging Face model, or its name in the cache of this machine. The
tokenizer is that of the training run or of the directory unless --tokenizer is given. The text goes to standard
output as it grows, speed to standard error.

Examples
  tessera generate checkpoints --prompt "A horse is"
  tessera generate Llama-3.2-1B --prompt "A horse is" --temperature 0.7 --top_p 0.9
  tessera generate checkpoints --prompt "A horse is" --temperature 0 --max_new_tokens 40
  tessera generate checkpoints/llama_v2-700steps --top_k 50 --top_p 0.9 --seed 7
  tessera generate checkpoints --prompt_file story.txt --stop '\n\n' 'The end'
  echo "A horse is" | tessera generate checkpoints --prompt_file -

Options
)";

std::string read_prompt(const ParsedOptions& parsed) {
  const RunConfig& config = parsed.config;
  if (config.prompt_file.empty()) return config.prompt;
  if (parsed.is_given("prompt"))
    throw UsageError("--prompt and --prompt_file are two sources of one text: give one of them");
  return read_text_input(config.prompt_file);
}

// The prompt as a document begins: with what the tokenizer puts there, or, in training text, behind
// the end of another.
std::vector<int32_t> encode(const Tokenizer& tokenizer, const std::string& prompt,
                            bool documents_joined) {
  std::vector<int32_t> ids;
  if (documents_joined && tokenizer.document_prefix().empty())
    ids.push_back(tokenizer.end_of_text());
  tokenizer.encode_prompt(prompt, ids);
  if (ids.empty()) ids.push_back(tokenizer.end_of_text());
  return ids;
}

// `\n` and `\t` become what they stand for, `\\` a backslash.
std::vector<std::string> stop_texts(const std::vector<std::string>& words) {
  std::vector<std::string> stops;
  for (const std::string& word : words) {
    std::string& stop = stops.emplace_back();
    for (size_t i = 0; i < word.size(); ++i) {
      char next = word[i] == '\\' && i + 1 < word.size() ? word[i + 1] : 0;
      bool known = next == 'n' || next == 't' || next == '\\';
      stop += !known ? word[i] : next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
      i += known;
    }
    if (stop.empty()) throw UsageError("--stop: a text must not be empty");
  }
  return stops;
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw UserError(cat("cannot write to standard output: ", std::strerror(errno)));
}

std::string rate(int64_t tokens, double seconds) {
  return format("%lld tokens in %.2f s (%.1f tokens/s)", static_cast<long long>(tokens), seconds,
                static_cast<double>(tokens) / std::max(seconds, 1e-9));
}

// Before the decoder allocates what it planned.
void check_memory(const RunConfig& config, int64_t planned, int threads) {
  RankMemory need{planned, memory_beside_plan(config, planned, threads), memory_pools()};
  auto shortage = find_shortage({&need, 1});
  if (!shortage || (config.memory && planned <= *config.memory)) return;
  throw UserError(cat("not enough memory: ", shortage->text,
                      "; --bf16 1 halves the weights of an f32 model, fewer --max_new_tokens the ",
                      "cache. Where the system is wrong, say by --memory BYTES what may be used"));
}

// Writes the continuation of `ids` to standard output.
void continue_text(const RunConfig& config, const Tokenizer& tokenizer, const TrainedModel& model,
                   Decoder& decoder, std::vector<int32_t> ids) {
  Sampler sampler({config.temperature, config.top_k, config.top_p, config.seed});
  TextOutput output(stop_texts(config.stop));
  auto prompt = static_cast<int64_t>(ids.size());
  double start = monotonic_seconds(), first = start;
  int64_t runs = 0;
  for (int64_t i = 0; i < config.max_new_tokens && !output.stopped(); ++i) {
    // Rows beyond the tokenizer's ids stand for nothing.
    auto logits = decoder.next_logits(ids).first(static_cast<size_t>(tokenizer.vocab_size()));
    if (runs++ == 0) first = monotonic_seconds();
    if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); })) {
      throw UserError(
          cat("the model's outputs are not finite: its training diverged; use a checkpoint before ",
              model.path.string()));
    }
    int32_t next = sampler.choose(logits, static_cast<uint64_t>(i));
    if (next == tokenizer.end_of_text() || std::ranges::count(model.end_ids, next) > 0) break;
    ids.push_back(next);
    print(output.add(tokenizer.token_bytes(next)));
  }
  print(output.finish() + "\n");
  // The first token comes with the prompt.
  TESSERA_INFO(cat("Prompt: ", rate(runs > 0 ? prompt : 0, first - start), "; behind it: ",
                   rate(std::max<int64_t>(runs - 1, 0), monotonic_seconds() - first)));
}

}  // namespace

int generate_command(std::span<const std::string> arguments) {
  ParsedOptions parsed = parse_command(arguments, OptionScope::kGenerate);
  if (parsed.help) return print_help(parsed, kHelp);
  if (parsed.words.size() != 1)
    throw UsageError(
        "generate takes one checkpoint, a directory of them, or a Hugging Face model: tessera "
        "generate MODEL --prompt TEXT");
  const RunConfig& config = parsed.config;
  std::optional<std::string> given;
  if (parsed.is_given("tokenizer")) given = config.tokenizer;
  TrainedModel model = open_trained_model(parsed.words[0], config, given);
  auto tokenizer = load_tokenizer(model.tokenizer);
  if (tokenizer->vocab_size() > model.model.vocab_size) {
    throw UserError(cat("the tokenizer has ", tokenizer->vocab_size(),
                        " ids, the model's vocabulary only ", model.model.vocab_size,
                        ": give --tokenizer the one that it was trained with"));
  }
  log_messages(parsed);

  std::string prompt = read_prompt(parsed);
  std::vector<int32_t> ids = encode(*tokenizer, prompt, model.documents_joined);
  DecoderOptions options;
  options.context = model.context;
  options.prompt = std::ssize(ids);
  options.longest = options.prompt + config.max_new_tokens;
  options.compute = model.compute;
  if (parsed.is_given("bf16")) options.compute = config.bf16 ? DType::kBF16 : DType::kF32;
  auto backend = open_cpu(config);
  Decoder decoder(model_builder(model.model), options, *backend, [&](int64_t planned) {
    RunConfig run = config;
    run.bf16 = options.compute == DType::kBF16;
    if (!parsed.is_given("tokenizer")) run.tokenizer = model.tokenizer;
    check_memory(run, planned, backend->pool().threads());
  });
  decoder.load(*model.weights, backend->pool());
  print(prompt);
  continue_text(config, *tokenizer, model, decoder, std::move(ids));
  return 0;
}

}  // namespace tessera
